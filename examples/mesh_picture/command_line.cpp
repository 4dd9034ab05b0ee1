// SPDX-License-Identifier: Apache-2.0
#include "command_line.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <string_view>

#include "input_error.hpp"

namespace mesh_picture {

namespace {

constexpr std::size_t most_ranks = 64;
constexpr std::size_t most_microbatches = 1000;

/// The whole of `text` as a number.
bool read_number(std::string_view text, std::size_t& value) {
    const char* const end = text.data() + text.size();
    const auto result = std::from_chars(text.data(), end, value);
    return result.ec == std::errc{} && result.ptr == end;
}

void read_mesh(const std::string& given, Options& options) {
    std::array<std::size_t, 3> extents{};
    std::string_view rest = given;
    for (std::size_t i = 0; i < extents.size(); ++i) {
        const std::size_t end = i + 1 == extents.size() ? rest.size() : rest.find('x');
        if (end == std::string_view::npos || !read_number(rest.substr(0, end), extents[i]) || extents[i] == 0) {
            throw bad_flag("--mesh", given, "DPxTPxCP, three whole numbers of at least 1, for example 2x2x2");
        }
        rest.remove_prefix(std::min(end + 1, rest.size()));
    }
    std::size_t ranks = 1;
    for (const std::size_t extent : extents) {
        if (extent > most_ranks / ranks) {
            throw bad_flag("--mesh", given, "at most " + std::to_string(most_ranks) + " ranks in a picture");
        }
        ranks *= extent;
    }
    options.dp = extents[0];
    options.tp = extents[1];
    options.cp = extents[2];
}

void read_policy(const std::string& given, Options& options) {
    constexpr std::array<std::string_view, 4> plain{"no_shard", "shard_optimizer", "shard_grad_op", "full_shard"};
    constexpr std::string_view hybrid = "hybrid_shard:";
    if (std::find(plain.begin(), plain.end(), given) != plain.end()) {
        options.policy = given;
        options.hybrid_group = 0;
    } else if (given.starts_with(hybrid) && read_number(given.substr(hybrid.size()), options.hybrid_group) &&
               options.hybrid_group > 0) {
        options.policy = "hybrid_shard";
    } else {
        throw bad_flag(
            "--policy", given,
            "no_shard, shard_optimizer, shard_grad_op, full_shard or hybrid_shard:N with N ranks in a group");
    }
}

void read_microbatches(const std::string& given, Options& options) {
    if (!read_number(given, options.microbatches) || options.microbatches == 0 ||
        options.microbatches > most_microbatches) {
        throw bad_flag("--microbatches", given, "a whole number from 1 to " + std::to_string(most_microbatches));
    }
}

}  // namespace

std::string usage() {
    return "mesh_picture --mesh DPxTPxCP --out FILE.svg [--policy NAME] [--microbatches N]\n"
           "Draws which rank holds what of each parameter, and which collectives one training step runs.\n"
           "  --mesh DPxTPxCP   data x tensor x context parallel ranks, at most " +
           std::to_string(most_ranks) +
           "\n"
           "  --policy NAME     no_shard, shard_optimizer, shard_grad_op, full_shard or hybrid_shard:N [full_shard]\n"
           "  --microbatches N  forward and backward passes in the step [1]\n"
           "  --out FILE.svg    the picture\n";
}

Options parse_command_line(std::span<const char* const> arguments) {
    Options options;
    bool has_mesh = false;
    for (std::size_t i = 0; i < arguments.size(); i += 2) {
        const std::string flag = arguments[i];
        if (flag != "--mesh" && flag != "--policy" && flag != "--microbatches" && flag != "--out") {
            throw InputError("unknown argument '" + flag + "': expected --mesh, --policy, --microbatches or --out");
        }
        if (i + 1 == arguments.size()) { throw InputError(flag + ": expected a value behind it"); }
        const std::string given = arguments[i + 1];
        if (flag == "--mesh") {
            read_mesh(given, options);
            has_mesh = true;
        } else if (flag == "--policy") {
            read_policy(given, options);
        } else if (flag == "--microbatches") {
            read_microbatches(given, options);
        } else {
            options.out = given;
        }
    }
    if (!has_mesh) { throw InputError("no --mesh: expected --mesh DPxTPxCP, for example 2x2x2"); }
    if (options.out.empty()) { throw InputError("no --out: expected --out FILE.svg"); }
    if (options.hybrid_group > 0 && options.dp % options.hybrid_group != 0) {
        throw bad_flag("--policy", options.policy_text(),
                       "a group that divides the " + std::to_string(options.dp) + " data-parallel ranks of --mesh " +
                           options.mesh_text());
    }
    return options;
}

}  // namespace mesh_picture
