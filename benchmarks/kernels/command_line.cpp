// SPDX-License-Identifier: Apache-2.0
#include "command_line.hpp"

#include <cstdint>

#include "../common/flags.hpp"
#include "../common/parse.hpp"

namespace benchmarks::kernels {

namespace {

void add_flags(Flags& flags) {
    flags.add("--kernel", "LIST", "all, or a list with commas of " + listed(kernel_names) + " [all]");
    flags.add("-d,--datatype", "LIST", "all, or a list with commas of float and bfloat16 [all]");
    flags.add("--ranks", "N", "threads that run the kernel at the same time, each on data of its own [1]");
    flags.add("-b,--minbytes", "SIZE", "smallest number of bytes that a rank reads and writes in a call [256K]");
    flags.add("-e,--maxbytes", "SIZE", "largest number of these [256M; --minbytes where that is larger]");
    flags.add("-f,--stepfactor", "N", "each size is N times the one before [32]");
    flags.add("-w,--warmup_iters", "N", "calls before the timing of each size [5]");
    flags.add("-n,--iters", "N", "calls back to back in each round [64 MiB / size, from 1 to 200]");
    flags.add("--rounds", "N", "rounds of calls and copies in turns; their median is reported [15]");
    flags.add("-c,--check", "N", "untimed calls of each size whose results are checked; 0 for none [1]");
    flags.add("--pin", "off|on", "bind rank r to the r-th processor that this process may use [off]");
    flags.add("--json", "FILE", "write the results as one JSON object");
}

}  // namespace

std::optional<Options> parse_command_line(int count, const char* const* arguments, std::string& help) {
    Flags flags("Times the element-wise kernels of shardkit on the host, and a copy of the same bytes beside each.",
                "kernels");
    add_flags(flags);
    flags.parse(count, arguments);
    if (!flags.help().empty()) {
        help = flags.help();
        return std::nullopt;
    }

    Options o;
    const auto count_into = [&](const std::string& name, std::size_t& target, std::uint64_t least,
                                std::uint64_t most) {
        flags.use(name, [&](const std::string& flag, const std::string& given) {
            target = parse_count(flag, given, least, most);
        });
    };
    std::string kernels = "all";
    flags.use("--kernel", [&](const std::string&, const std::string& given) { kernels = given; });
    for (const std::size_t i : parse_names("--kernel", kernels, kernel_names)) {
        o.kernels.push_back(static_cast<KernelKind>(i));
    }
    flags.use("--datatype", [&](const std::string& flag, const std::string& given) {
        o.types.clear();
        for (const std::size_t i : parse_names(flag, given, type_names)) {
            o.types.push_back(static_cast<DataType>(i));
        }
    });
    count_into("--ranks", o.ranks, 1, 4096);
    flags.use("--minbytes", [&](const std::string& flag, const std::string& given) {
        o.min_bytes = parse_bytes(flag, given);
        if (o.max_bytes < o.min_bytes) { o.max_bytes = o.min_bytes; }
    });
    flags.use("--maxbytes", [&](const std::string& flag, const std::string& given) {
        o.max_bytes = parse_bytes(flag, given);
        if (o.max_bytes < o.min_bytes) {
            throw bad_flag(flag, given, "at least --minbytes, " + std::to_string(o.min_bytes) + " bytes");
        }
    });
    flags.use("--stepfactor", [&](const std::string& flag, const std::string& given) {
        o.step_factor = parse_count(flag, given, 2, 1U << 20U);
    });
    count_into("--warmup_iters", o.warmup, 0, 1'000'000'000);
    count_into("--iters", o.calls, 1, 1'000'000'000);
    count_into("--rounds", o.rounds, 1, 1'000'000'000);
    count_into("--check", o.checks, 0, 1'000'000'000);
    flags.use("--pin", [&](const std::string& flag, const std::string& given) {
        o.pin = parse_name(flag, given, switch_names) == 1;
    });
    flags.use("--json", [&](const std::string& flag, const std::string& given) {
        if (given.empty()) { throw bad_flag(flag, given, "a file name"); }
        o.json = given;
    });
    return o;
}

}  // namespace benchmarks::kernels
