// SPDX-License-Identifier: Apache-2.0
#include "command_line.hpp"

#include <cstdint>

#include "../../examples/common/read_flag.hpp"
#include "../common/sweep_flags.hpp"

namespace benchmarks::kernels {

namespace {

const SweepFlags sizes{"number of bytes that a rank reads and writes in a call", std::uint64_t{256} << 10U,
                       std::uint64_t{256} << 20U, 32};

void add_flags(program::Flags& flags) {
    flags.add("--kernel", "LIST", "all, or a list with commas of " + program::listed(kernel_names) + " [all]");
    flags.add("-d,--datatype", "LIST", "all, or a list with commas of float and bfloat16 [all]");
    flags.add("--ranks", "N", "threads that run the kernel at the same time, each on data of its own [1]");
    sizes.add(flags);
}

}  // namespace

std::optional<Options> parse_command_line(int count, const char* const* arguments, std::string& help) {
    program::Flags flags(
        "Times the element-wise kernels of shardkit on the host, and a copy of the same bytes beside each.",
        "kernels");
    add_flags(flags);
    flags.parse(count, arguments);
    if (!flags.help().empty()) {
        help = flags.help();
        return std::nullopt;
    }

    Options o;
    std::string kernels = "all";
    flags.use("--kernel", [&](const std::string&, const std::string& given) { kernels = given; });
    for (const std::size_t i : program::parse_names("--kernel", kernels, kernel_names)) {
        o.kernels.push_back(static_cast<KernelKind>(i));
    }
    read_names(flags, "--datatype", type_names, o.types);
    program::read_count(flags, "--ranks", o.ranks, 1, 4096);
    sizes.read(flags, o);
    return o;
}

}  // namespace benchmarks::kernels
