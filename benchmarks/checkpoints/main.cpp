// SPDX-License-Identifier: Apache-2.0
#include <stdexcept>
#include <string>

#include "../../examples/common/attempt.hpp"
#include "../common/machine.hpp"
#include "../common/result_files.hpp"
#include "options.hpp"
#include "report.hpp"

namespace {

using namespace benchmarks;

void measure_and_report(int count, char** arguments) {
    std::string help;
    const auto options = checkpoints::parse_command_line(count, arguments, help);
    if (!options) {
        print(help);
        return;
    }
    const Machine machine = read_machine();
    // Two states for the check, or one and the limit's bytes.
    require_memory(28.0 * static_cast<double>(options->elements), "--elements");
    const ResultFiles files(options->json, "");
    print(checkpoints::table_head(*options, machine));
    const checkpoints::Measured measured = checkpoints::run(*options);
    print(checkpoints::table(measured));
    files.write(checkpoints::json_report(*options, machine, measured));
    if (measured.wrong > 0) {
        throw std::runtime_error("wrong data: " + std::to_string(measured.wrong) + " bytes differ after a load");
    }
}

}  // namespace

int main(int count, char** arguments) {
    return program::run_program("checkpoints", [&] { measure_and_report(count, arguments); });
}
