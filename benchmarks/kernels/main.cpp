// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "../../examples/common/attempt.hpp"
#include "../common/machine.hpp"
#include "../common/result_files.hpp"
#include "options.hpp"
#include "report.hpp"

namespace {

using namespace benchmarks;

void measure_and_report(int count, char** arguments) {
    std::string help;
    const auto options = kernels::parse_command_line(count, arguments, help);
    if (!options) {
        print(help);
        return;
    }
    Machine machine = read_machine();
    if (options->device == kernels::Device::gpu) { machine.gpu = read_gpu("--device gpu", 0, 1); }
    // What is read and written once or twice, and both sides of the copy.
    if (options->device == kernels::Device::host) {
        require_memory(1.5 * static_cast<double>(options->largest_size()) * static_cast<double>(options->ranks),
                       "--maxbytes, or fewer ranks");
    }
    const ResultFiles files(options->json, "");
    print(kernels::table_head(*options, machine));
    std::vector<kernels::Row> rows;
    std::uint64_t wrong = 0;
    const kernels::RowSink sink = [&](const kernels::Row& row) {
        print(kernels::table_row(row, *options));
        wrong += row.figure.wrong.value_or(0);
        rows.push_back(row);
    };
    options->device == kernels::Device::gpu ? kernels::run_on_gpu(*options, sink)
                                            : kernels::run_on_host(*options, sink);
    files.write(kernels::json_report(*options, machine, rows));
    if (wrong > 0) { throw std::runtime_error("wrong data: " + std::to_string(wrong) + " values; see #wrong"); }
}

}  // namespace

int main(int count, char** arguments) {
    return program::run_program("kernels", [&] { measure_and_report(count, arguments); });
}
