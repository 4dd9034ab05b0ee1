// SPDX-License-Identifier: Apache-2.0
#include "command_line.hpp"

#include <charconv>
#include <cstdint>

#include "../common/flags.hpp"
#include "../common/parse.hpp"
#include "verb_facts.hpp"

namespace benchmarks {

namespace {

void add_flags(Flags& flags) {
    flags.add("--engine", "NAME", "self (one rank), threads (ranks in this process) or mpi (processes) [threads]");
    flags.add("--ranks", "N", "ranks, all in one group [2; 1 with --engine self; with mpi all processes]");
    flags.add("--mesh", "DPxTPxCP", "ranks as a mesh, in place of --ranks");
    flags.add("--axis", "LIST",
              "of dp, tp, cp: the axes over which is communicated; all their sub-meshes run at once [dp]");
    flags.add("--verb", "LIST", "all, or a list with commas of " + listed(verb_names) + " [all]");
    flags.add("-b,--minbytes", "SIZE", "smallest size in bytes; K, M and G are powers of 1024 [256]");
    flags.add("-e,--maxbytes", "SIZE", "largest size [64M; --minbytes where that is larger]");
    flags.add("-f,--stepfactor", "N", "each size is N times the one before [8]");
    flags.add("-d,--datatype", "LIST", "all, or a list with commas of " + listed(type_names) + " [float]");
    flags.add("-o,--op", "LIST", "all, or a list with commas of sum, max and min [sum]");
    flags.add("-r,--root", "N", "root of a broadcast, as a rank of the group [0]");
    flags.add("--in-place", "off|on|both",
              "where results lie: in a buffer of their own, in the input's, or both [both]");
    flags.add("-w,--warmup_iters", "N", "calls before the timing of each size [5]");
    flags.add("-n,--iters", "N", "calls back to back in each round [64 MiB / size, from 1 to 200]");
    flags.add("--rounds", "N", "rounds of calls and copies in turns; their median is reported [15]");
    flags.add("-c,--check", "N", "untimed calls of each size whose results are checked; 0 for none [1]");
    flags.add("--pin", "off|on", "bind rank r to the r-th processor that this process may use [off]");
    flags.add("--json", "FILE", "write the results as one JSON object");
    flags.add("--plot", "FILE", "draw bandwidth and latency over size, .png or .svg");
}

MeshExtents parse_mesh(const std::string& flag, const std::string& given) {
    std::size_t extents[3]{};
    const char* at = given.data();
    const char* end = at + given.size();
    for (std::size_t i = 0; i < 3; ++i) {
        const auto [stop, error] = std::from_chars(at, end, extents[i]);
        const bool separated = i == 2 ? stop == end : stop != end && *stop == 'x';
        if (error != std::errc{} || !separated || extents[i] == 0) {
            throw bad_flag(flag, given, "DPxTPxCP, three whole numbers of at least 1, for example 2x2x1");
        }
        at = stop + 1;
    }
    const MeshExtents mesh{extents[0], extents[1], extents[2]};
    for (const std::size_t extent : extents) {
        if (extent > most_ranks || mesh.world() > most_ranks) {
            throw bad_flag(flag, given, "at most " + std::to_string(most_ranks) + " ranks");
        }
    }
    return mesh;
}

/// --engine, --ranks, --mesh, --axis
void read_ranks(const Flags& flags, Options& o, std::size_t processes) {
    flags.use("--engine", [&](const std::string& flag, const std::string& given) {
        o.engine = static_cast<EngineKind>(parse_name(flag, given, engine_names));
    });
    o.mesh.dp = o.engine == EngineKind::self ? 1 : o.engine == EngineKind::mpi ? processes : 2;
    flags.use("--ranks", [&](const std::string& flag, const std::string& given) {
        o.mesh.dp = parse_count(flag, given, 1, most_ranks);
    });
    flags.use("--mesh", [&](const std::string& flag, const std::string& given) {
        if (flags.is_given("--ranks")) { throw InputError("--ranks and --mesh: expected one of the two"); }
        o.mesh = parse_mesh(flag, given);
    });
    flags.use("--axis", [&](const std::string& flag, const std::string& given) {
        if (!flags.is_given("--mesh")) { throw bad_flag(flag, given, "a --mesh DPxTPxCP with it"); }
        o.axes = parse_names(flag, given, axis_names);
    });
    const std::string ranks = std::to_string(o.mesh.world()) + " ranks";
    if (o.engine == EngineKind::self && o.mesh.world() != 1) {
        throw InputError("--engine self: has one rank, but " + ranks + " were given: expected --ranks 1");
    }
    if (o.engine == EngineKind::mpi && o.mesh.world() != processes) {
        throw InputError("--engine mpi: this job has " + std::to_string(processes) + " processes, but " + ranks +
                         " were given: expected mpirun -n " + std::to_string(o.mesh.world()));
    }
}

bool has_placement(VerbKind verb, const Options& o) {
    const VerbFacts facts = VerbFacts::of(verb, o.group_size());
    return (facts.out_of_place && o.out_of_place) || (facts.in_place && o.in_place);
}

/// --in-place and --verb
void read_verbs(const Flags& flags, Options& o) {
    std::string wanted = "both";
    flags.use("--in-place", [&](const std::string& flag, const std::string& given) {
        const std::size_t choice = parse_name(flag, given, in_place_names);
        o.out_of_place = choice != 1;
        o.in_place = choice != 0;
        wanted = given;
    });
    std::string verbs = "all";
    flags.use("--verb", [&](const std::string&, const std::string& given) { verbs = given; });
    for (const std::size_t index : parse_names("--verb", verbs, verb_names)) {
        const auto verb = static_cast<VerbKind>(index);
        const std::string name(verb_names[index]);
        if (has_placement(verb, o)) {
            o.verbs.push_back(verb);
        } else if (verbs == "all") {
            o.left_out.append(o.left_out.empty() ? "" : ", ").append(name);
        } else {
            throw bad_flag("--in-place", wanted,
                           (o.in_place ? "off or both: " + name + " has no form in place"
                                       : "on or both: " + name + " has no form out of place"));
        }
    }
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

/// -b, -e, -f
void read_sizes(const Flags& flags, Options& o) {
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
}

}  // namespace

std::optional<Options> parse_command_line(int count, const char* const* arguments, std::string& help,
                                          std::size_t processes) {
    Flags flags("Times the communication verbs of shardkit, and a copy of the same bytes beside each of them.",
                "collectives");
    add_flags(flags);
    flags.parse(count, arguments);
    if (!flags.help().empty()) {
        help = flags.help();
        return std::nullopt;
    }

    Options o;
    const auto count_into = [&](const std::string& name, std::size_t& target, std::uint64_t least) {
        flags.use(name, [&](const std::string& flag, const std::string& given) {
            target = parse_count(flag, given, least, 1'000'000'000);
        });
    };
    const auto file_into = [&](const std::string& name, std::string& target) {
        flags.use(name, [&](const std::string& flag, const std::string& given) {
            if (given.empty()) { throw bad_flag(flag, given, "a file name"); }
            target = given;
        });
    };
    read_ranks(flags, o, processes);
    read_verbs(flags, o);
    read_sizes(flags, o);
    flags.use("--datatype", [&](const std::string& flag, const std::string& given) {
        o.types.clear();
        for (const std::size_t i : parse_names(flag, given, type_names)) {
            o.types.push_back(static_cast<DataType>(i));
        }
    });
    flags.use("--op", [&](const std::string& flag, const std::string& given) {
        o.ops.clear();
        for (const std::size_t i : parse_names(flag, given, op_names)) {
            o.ops.push_back(static_cast<shardkit::ReduceOp>(i));
        }
    });
    flags.use("--root", [&](const std::string& flag, const std::string& given) {
        o.root = parse_count(flag, given, 0, o.group_size() - 1);
    });
    count_into("--warmup_iters", o.warmup, 0);
    count_into("--iters", o.calls, 1);
    count_into("--rounds", o.rounds, 1);
    count_into("--check", o.checks, 0);
    flags.use("--pin", [&](const std::string& flag, const std::string& given) {
        o.pin = parse_name(flag, given, switch_names) == 1;
    });
    file_into("--json", o.json);
    file_into("--plot", o.plot);
    if (!o.plot.empty() && !moves_data(o)) {
        throw bad_flag("--plot", o.plot, "a --verb, ranks and --in-place with which data is moved");
    }
    return o;
}

}  // namespace benchmarks
