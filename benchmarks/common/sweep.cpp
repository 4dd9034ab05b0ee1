// SPDX-License-Identifier: Apache-2.0
#include "sweep.hpp"

#include "../../examples/common/read_flag.hpp"

namespace benchmarks {

namespace {

/// As a flag takes it: with the largest unit that divides it.
std::string size_text(std::uint64_t bytes) {
    constexpr std::string_view units = "KMG";
    std::string unit;
    for (std::size_t i = 0; i < units.size() && bytes % 1024 == 0; ++i, bytes /= 1024) { unit = units[i]; }
    return std::to_string(bytes) + unit;
}

}  // namespace

void SweepFlags::add(program::Flags& flags) const {
    flags.add(
        "-b,--minbytes", "SIZE",
        "smallest " + bytes + "; K, M and G, or small letters, are powers of 1024 [" + size_text(min_bytes) + "]");
    flags.add("-e,--maxbytes", "SIZE",
              "largest " + bytes + " [" + size_text(max_bytes) + "; --minbytes where that is larger]");
    flags.add("-f,--stepfactor", "N", "each size is N times the one before [" + std::to_string(step_factor) + "]");
    flags.add("-i,--stepbytes", "SIZE", "each size is larger by SIZE than the one before, in place of -f");
    flags.add("-w,--warmup_iters", "N", "calls before the timing of each size [5]");
    flags.add("-n,--iters", "N",
              "calls back to back in each round [64 MiB / size, from 1 to 200; on GPUs 8 GiB / size, from 20]");
    flags.add("--rounds", "N", "rounds of calls and copies in turns; their median is reported [15]");
    flags.add("-c,--check", "N", "untimed calls of each size whose results are checked; 0 for none [1]");
    flags.add("--pin", "off|on", "bind rank r to the r-th processor that this process may use [off]");
    flags.add("--json", "FILE", "write the results as one JSON object");
}

void SweepFlags::read(const program::Flags& flags, Sweep& sweep) const {
    sweep.min_bytes = min_bytes;
    sweep.max_bytes = max_bytes;
    sweep.step_factor = step_factor;
    flags.use("--minbytes", [&](const std::string& flag, const std::string& given) {
        sweep.min_bytes = program::parse_bytes(flag, given);
        if (sweep.max_bytes < sweep.min_bytes) { sweep.max_bytes = sweep.min_bytes; }
    });
    flags.use("--maxbytes", [&](const std::string& flag, const std::string& given) {
        sweep.max_bytes = program::parse_bytes(flag, given);
        if (sweep.max_bytes < sweep.min_bytes) {
            throw program::bad_flag(flag, given,
                                    "at least --minbytes, " + std::to_string(sweep.min_bytes) + " bytes");
        }
    });
    program::read_count(flags, "--stepfactor", sweep.step_factor, 2, 1U << 20U);
    flags.use("--stepbytes", [&](const std::string& flag, const std::string& given) {
        if (flags.is_given("--stepfactor")) {
            throw program::InputError("--stepfactor and --stepbytes: expected one of the two");
        }
        sweep.step_bytes = program::parse_bytes(flag, given);
        if ((sweep.max_bytes - sweep.min_bytes) / sweep.step_bytes >= most_sizes) {
            throw program::bad_flag(flag, given, "at most " + std::to_string(most_sizes) + " sizes");
        }
    });
    constexpr std::uint64_t most = 1'000'000'000;
    program::read_count(flags, "--warmup_iters", sweep.warmup, 0, most);
    program::read_count(flags, "--iters", sweep.calls, 1, most);
    program::read_count(flags, "--rounds", sweep.rounds, 1, most);
    program::read_count(flags, "--check", sweep.checks, 0, most);
    program::read_name(flags, "--pin", program::switch_names, sweep.pin);
    program::read_file(flags, "--json", sweep.json);
}

}  // namespace benchmarks
