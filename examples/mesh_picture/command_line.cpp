// SPDX-License-Identifier: Apache-2.0
#include "command_line.hpp"

#include <cstddef>

#include "../common/read_flag.hpp"

namespace mesh_picture {

namespace {

constexpr std::size_t most_ranks = 64;
constexpr std::size_t most_microbatches = 1000;

}  // namespace

std::optional<Options> parse_command_line(int count, const char* const* arguments, std::string& help) {
    program::Flags flags(
        "Draws which rank holds what of each parameter, and which collectives one training step runs.",
        "mesh_picture");
    flags.add("--mesh", "DPxTPxCP", "data x tensor x context parallel ranks, at most " + std::to_string(most_ranks));
    flags.add("--policy", "NAME", std::string(program::policy_words) + " [full_shard]");
    flags.add("--ep", "N", "draw a group of experts, which N data ranks share; cp = 1");
    flags.add("--microbatches", "N", "forward and backward passes in the step [1]");
    flags.add("--out", "FILE.svg", "the picture");
    if (!flags.parse(count, arguments, help)) { return std::nullopt; }
    if (!flags.is_given("--mesh")) {
        throw program::InputError("no --mesh: expected --mesh DPxTPxCP, for example 2x2x2");
    }
    if (!flags.is_given("--out")) { throw program::InputError("no --out: expected --out FILE.svg"); }

    Options options;
    flags.use("--mesh", [&](const auto& flag, const auto& given) {
        options.mesh = program::parse_mesh(flag, given, most_ranks);
    });
    flags.use("--policy",
              [&](const auto& flag, const auto& given) { options.policy = program::parse_policy(flag, given); });
    program::read_count(flags, "--ep", options.ep, 1, most_ranks);
    if (options.ep > 0 && options.mesh.cp > 1) {
        throw program::bad_flag("--ep", std::to_string(options.ep), "a mesh with cp = 1");
    }
    program::read_count(flags, "--microbatches", options.microbatches, 1, most_microbatches);
    program::read_file(flags, "--out", options.out);
    if (!options.out.ends_with(".svg")) { throw program::bad_flag("--out", options.out, "a name that ends in .svg"); }
    options.policy.require_fits("--policy", options.mesh.dp, " of --mesh " + options.mesh.describe());
    return options;
}

}  // namespace mesh_picture
