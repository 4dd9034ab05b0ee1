// SPDX-License-Identifier: Apache-2.0
// Draws a mesh: which rank holds which piece of each parameter, and which collectives a training step runs.
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>
#include <span>
#include <stdexcept>
#include <string_view>

#include "command_line.hpp"
#include "input_error.hpp"
#include "picture.hpp"
#include "record.hpp"

namespace {

mesh_picture::Facts facts_of(const mesh_picture::Options& options) {
    try {
        return mesh_picture::record(options);
    } catch (const std::invalid_argument& error) {
        throw mesh_picture::InputError("--mesh '" + options.mesh_text() + "': " + error.what());
    }
}

void write(const std::string& name, const std::string& text) {
    std::ofstream file(name, std::ios::binary);
    file << text << std::flush;
    if (file) { return; }
    throw mesh_picture::bad_flag("--out", name,
                                 std::string("a file that can be written (") + std::strerror(errno) + ")");
}

}  // namespace

int main(int count, char** arguments) {
    try {
        const std::span<const char* const> given(arguments + 1, static_cast<std::size_t>(count - 1));
        if (!given.empty() && std::string_view(given[0]) == "--help") {
            std::fputs(mesh_picture::usage().c_str(), stdout);
            return 0;
        }
        const mesh_picture::Options options = mesh_picture::parse_command_line(given);
        write(options.out, picture(options, facts_of(options)));
        return 0;
    } catch (const mesh_picture::InputError& error) {
        std::fprintf(stderr, "mesh_picture: %s\n", error.what());
        return 2;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "mesh_picture: %s\n", error.what());
        return 1;
    }
}
