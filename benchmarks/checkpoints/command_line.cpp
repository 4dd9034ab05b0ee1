// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "../../examples/common/read_flag.hpp"
#include "options.hpp"

namespace benchmarks::checkpoints {

std::optional<Options> parse_command_line(int count, const char* const* arguments, std::string& help) {
    program::Flags flags("Times checkpoints of shardkit, and plain reads and writes of the same bytes beside each.",
                         "checkpoints");
    flags.add("--ranks", "N", "threads, each with its part of the state [2]");
    flags.add("--policy", "NAME", program::listed(policy_names) + " [full_shard]");
    flags.add("--elements", "N", "parameters of the model, in fp32 with AdamW: 12 bytes of state each [124000000]");
    flags.add("--rounds", "N", "rounds in which everything has its turn; the median is reported [15]");
    flags.add("--folder", "PATH", "where a folder for the files is made, and removed at the end [TMPDIR, or /tmp]");
    flags.add("--json", "FILE", "write the results as one JSON object");
    if (!flags.parse(count, arguments, help)) { return std::nullopt; }
    Options o;
    program::read_count(flags, "--ranks", o.ranks, 1, 64);
    program::read_name(flags, "--policy", policy_names, o.policy);
    program::read_count(flags, "--elements", o.elements, 1000, 100'000'000'000);
    program::read_count(flags, "--rounds", o.rounds, 1, 10'000);
    program::read_file(flags, "--folder", o.folder);
    program::read_file(flags, "--json", o.json);
    return o;
}

}  // namespace benchmarks::checkpoints
