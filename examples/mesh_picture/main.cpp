// SPDX-License-Identifier: Apache-2.0
// Draws a mesh: which rank holds which piece of each parameter, and which collectives a training step runs.
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "../common/attempt.hpp"
#include "../common/output_file.hpp"
#include "command_line.hpp"
#include "picture.hpp"
#include "record.hpp"

namespace {

mesh_picture::Facts facts_of(const mesh_picture::Options& options) {
    try {
        return mesh_picture::record(options);
    } catch (const std::invalid_argument& error) {
        throw program::InputError("--mesh '" + options.mesh.describe() + "': " + error.what());
    }
}

void draw(int count, const char* const* arguments) {
    std::string help;
    const auto options = mesh_picture::parse_command_line(count, arguments, help);
    if (!options) {
        std::fputs(help.c_str(), stdout);
        return;
    }
    program::OutputFile out("--out", options->out);
    out.write(picture(*options, facts_of(*options)));
}

}  // namespace

int main(int count, char** arguments) {
    return program::run_program("mesh_picture", [&] { draw(count, arguments); });
}
