// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"

#include <bit>
#include <cstdint>
#include <string>
#include <vector>

#include "../../examples/common/read_flag.hpp"
#include "../common/sweep.hpp"
#include "rows.hpp"

namespace benchmarks {

namespace {

/// 64 MiB: the largest size of which the targets speak.
const SweepFlags sizes{"size in bytes", 256, std::uint64_t{64} << 20U, 8};

void add_flags(program::Flags& flags) {
    flags.add("--engine", "NAME",
              "self (one rank), threads (ranks in this process), mpi (processes) or nccl (processes with a GPU each) "
              "[threads]");
    flags.add("--ranks", "N", "ranks, all in one group [2; 1 with --engine self; with mpi and nccl all processes]");
    flags.add("--mesh", "DPxTPxCP", "ranks as a mesh, in place of --ranks");
    flags.add("--axis", "LIST",
              "of dp, tp, cp: the axes over which is communicated; all their sub-meshes run at once [dp]");
    flags.add("--verb", "LIST", "all, or a list with commas of " + program::listed(verb_names) + " [all]");
    flags.add("-d,--datatype", "LIST", "all, or a list with commas of " + program::listed(type_names) + " [float]");
    flags.add("-o,--op", "LIST",
              "all, or a list with commas of sum, max, min and tree_sum, which needs a power of two of ranks [sum]");
    flags.add("-r,--root", "N", "root of a broadcast, as a rank of the group [0]");
    flags.add("--in-place", "off|on|both",
              "where results lie: in a buffer of their own, in the input's, or both [both]");
    flags.add("--of-copy", "off|on", "two more columns: the plain copy's time over the verb's [off]");
    flags.add("-g,--ngpus", "N",
              "as nccl-tests: ranks, in place of --ranks; 1 with mpi and nccl: one for each process of a launcher");
    flags.add("-G,--cudagraph", "N", "as nccl-tests: 0, for calls that are in no CUDA graph [0]");
    sizes.add(flags);
    flags.add("--staging", "SIZE", "with --engine nccl: memory of a GPU in which 16-bit sums are widened [32M]");
    flags.add("--plot", "FILE", "draw bandwidth and latency over size, .png or .svg");
    flags.add("--peers", "FILE",
              "draw the peers' collectives too, from what benchmarks/run peers collectives --json wrote");
}

/// --engine, --ranks, --mesh, --axis
void read_ranks(const program::Flags& flags, Options& o, std::size_t processes) {
    program::read_name(flags, "--engine", engine_names, o.engine);
    const bool are_processes = o.engine == EngineKind::mpi || o.engine == EngineKind::nccl;
    o.mesh.dp = o.engine == EngineKind::self ? 1 : are_processes ? processes : 2;
    if (o.engine == EngineKind::nccl) { o.for_gpu(); }
    program::read_count(flags, "--ranks", o.mesh.dp, 1, most_ranks);
    flags.use("--ngpus", [&](const std::string& flag, const std::string& given) {
        if (flags.is_given("--ranks")) { throw program::InputError("--ranks and --ngpus: expected one of the two"); }
        const std::size_t ranks = program::parse_count(flag, given, 1, most_ranks);
        if (!are_processes || ranks != 1) { o.mesh.dp = ranks; }
    });
    flags.use("--cudagraph", [](const std::string& flag, const std::string& given) {
        if (given != "0") { throw program::bad_flag(flag, given, "0: calls are given one by one, and in no graph"); }
    });
    flags.use("--mesh", [&](const std::string& flag, const std::string& given) {
        if (flags.is_given("--ranks") || flags.is_given("--ngpus")) {
            throw program::InputError(std::string(flags.is_given("--ranks") ? "--ranks" : "--ngpus") +
                                      " and --mesh: expected one of the two");
        }
        o.mesh = program::parse_mesh(flag, given, most_ranks);
    });
    flags.use("--axis", [&](const std::string& flag, const std::string& given) {
        if (!flags.is_given("--mesh")) { throw program::bad_flag(flag, given, "a --mesh DPxTPxCP with it"); }
        o.axes = program::parse_names(flag, given, axis_names);
    });
    require_ranks(o.engine, o.mesh, processes);
}

bool has_placement(VerbKind verb, const Options& o) {
    const VerbFacts facts = VerbFacts::of(verb, o.group_size());
    return (facts.out_of_place && o.out_of_place) || (facts.in_place && o.in_place);
}

/// --in-place and --verb
void read_verbs(const program::Flags& flags, Options& o) {
    std::string wanted = "both";
    flags.use("--in-place", [&](const std::string& flag, const std::string& given) {
        const std::size_t choice = program::parse_name(flag, given, in_place_names);
        o.out_of_place = choice != 1;
        o.in_place = choice != 0;
        wanted = given;
    });
    std::string verbs = "all";
    flags.use("--verb", [&](const std::string&, const std::string& given) { verbs = given; });
    for (const std::size_t index : program::parse_names("--verb", verbs, verb_names)) {
        const auto verb = static_cast<VerbKind>(index);
        const std::string name(verb_names[index]);
        if (has_placement(verb, o)) {
            o.verbs.push_back(verb);
        } else if (verbs == "all") {
            o.left_out.append(o.left_out.empty() ? "" : ", ").append(name);
        } else {
            throw program::bad_flag("--in-place", wanted,
                                    (o.in_place ? "off or both: " + name + " has no form in place"
                                                : "on or both: " + name + " has no form out of place"));
        }
    }
}

/// --op
void read_ops(const program::Flags& flags, Options& o) {
    read_names(flags, "--op", op_names, o.ops);
    if (std::has_single_bit(o.group_size())) { return; }
    flags.use("--op", [&](const std::string& flag, const std::string& given) {
        if (std::erase(o.ops, shardkit::ReduceOp::tree_sum) > 0 && given != "all") {
            throw program::bad_flag(flag, given,
                                    "a power of two of ranks for tree_sum, not " + std::to_string(o.group_size()));
        }
    });
}

/// Whether anything that is measured has a bandwidth to draw.
bool moves_data(const Options& o) {
    for (const VerbKind verb : o.verbs) {
        const VerbFacts facts = VerbFacts::of(verb, o.group_size());
        for (const Placement placement : {Placement::out_of_place, Placement::in_place}) {
            if (facts.has(placement) && o.wants(placement) && facts.copied(placement) > 0) { return true; }
        }
    }
    return false;
}

}  // namespace

std::optional<Options> parse_command_line(int count, const char* const* arguments, std::string& help,
                                          std::size_t processes) {
    program::Flags flags(
        "Times the communication verbs of shardkit, and a copy of the same bytes beside each of them.",
        "collectives");
    add_flags(flags);
    if (!flags.parse(count, arguments, help)) { return std::nullopt; }

    Options o;
    read_ranks(flags, o, processes);
    read_verbs(flags, o);
    program::read_name(flags, "--of-copy", program::switch_names, o.shares);
    sizes.read(flags, o);
    read_names(flags, "--datatype", type_names, o.types);
    read_ops(flags, o);
    program::read_count(flags, "--root", o.root, 0, o.group_size() - 1);
    flags.use("--staging", [&](const std::string& flag, const std::string& given) {
        if (o.engine != EngineKind::nccl) { throw program::bad_flag(flag, given, "an --engine nccl with it"); }
        o.staging_bytes = program::parse_bytes(flag, given);
    });
    program::read_file(flags, "--plot", o.plot);
    if (!o.plot.empty() && !moves_data(o)) {
        throw program::bad_flag("--plot", o.plot, "a --verb, ranks and --in-place with which data is moved");
    }
    flags.use("--peers", [&](const std::string& flag, const std::string& given) {
        if (o.plot.empty()) { throw program::bad_flag(flag, given, "a --plot FILE with it"); }
        o.peers = program::parse_file(flag, given);
    });
    return o;
}

}  // namespace benchmarks
