// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include "../../examples/common/parse.hpp"
#include "../../examples/common/read_flag.hpp"
#include "../../examples/common/text_format.hpp"

namespace benchmarks::policies {

std::size_t Options::hybrid_group_of(const program::MeshExtents& mesh) const noexcept {
    if (hybrid_group > 0) { return hybrid_group; }
    if (!predict.empty()) {
        std::size_t group = links.ranks_per_node / (mesh.tp * mesh.cp);
        if (group == 0) { group = 1; }
        while (mesh.dp % group != 0) { --group; }
        return group;
    }
    std::size_t group = mesh.dp > 1 ? 2 : 1;
    while (mesh.dp % group != 0) { ++group; }
    return group;
}

namespace {

/// A finite decimal number from `least` to `most`.
/// @throws InputError for anything else
double parse_number(const std::string& flag, const std::string& given, double least, double most) {
    double value = 0;
    if (!program::read_whole(std::string_view(given), value) || !(value >= least && value <= most)) {
        throw program::bad_flag(flag, given, program::formatted("a number from %g to %g", least, most));
    }
    return value;
}

/// "1000" or "768x3072": elements of a group.
std::size_t parse_shape(const std::string& flag, const std::string& given, const std::string& shape) {
    std::size_t numel = 1;
    std::string factor;
    for (const char c : shape + "x") {
        if (c != 'x') {
            factor += c;
            continue;
        }
        std::size_t extent = 0;
        try {
            extent = program::parse_count(flag, factor, 1);
        } catch (const program::InputError&) {
            throw program::bad_flag(flag, given, "a list with commas of element counts or shapes like 768x3072");
        }
        if (extent > most_elements / numel) { throw program::bad_flag(flag, given, "at most 2^44 elements"); }
        numel *= extent;
        factor.clear();
    }
    return numel;
}

void read_shapes(const std::string& flag, const std::string& given, Options& o) {
    for (const std::string& shape : program::split_list(given)) {
        o.groups.push_back({"groups." + std::to_string(o.groups.size()), parse_shape(flag, given, shape)});
    }
    o.model = "groups of " + given + " elements";
}

/// --layers, --width and --vocabulary, or --shapes: the model's groups and its description.
/// @throws InputError for both ways at once, and for a model of more than most_elements
void read_model(const program::Flags& flags, Options& o) {
    std::size_t layers = 4;
    std::size_t width = 256;
    std::size_t vocabulary = 4096;
    const auto count_into = [&](const char* name, std::size_t& target, std::size_t least, std::size_t most) {
        flags.use(name, [&](const std::string& flag, const std::string& given) {
            if (flags.is_given("--shapes")) {
                throw program::InputError("--shapes and " + flag + ": expected one of the two");
            }
            target = program::parse_count(flag, given, least, most);
        });
    };
    count_into("--layers", layers, 1, 1000);
    count_into("--width", width, 1, 1U << 17U);
    count_into("--vocabulary", vocabulary, 0, 1U << 22U);
    flags.use("--shapes", [&](const std::string& flag, const std::string& given) { read_shapes(flag, given, o); });
    if (o.groups.empty()) {
        if (vocabulary > 0) { o.groups.push_back({"embedding", vocabulary * width}); }
        for (std::size_t i = 0; i < layers; ++i) {
            o.groups.push_back({"layers." + std::to_string(i), 12 * width * width});
        }
        o.model = program::formatted("GPT of %zu layers, width %zu, vocabulary %zu", layers, width, vocabulary);
    }
    if (o.groups.size() > 4096 || o.numel() > most_elements) {
        throw program::InputError("the model has " + std::to_string(o.groups.size()) + " groups of " +
                                  std::to_string(o.numel()) +
                                  " elements in all: expected at most 4096 groups, 2^44 elements");
    }
}

void add_flags(program::Flags& flags) {
    flags.add("--engine", "NAME", "self (one rank), threads (ranks in this process) or mpi (processes) [threads]");
    flags.add("--ranks", "N", "ranks, all data-parallel [2; 1 with --engine self; with mpi all processes]");
    flags.add("--mesh", "LIST", "meshes DPxTPxCP with commas, in place of --ranks; tp holds copies");
    flags.add("--policy", "LIST",
              "all, or a list with commas of " + program::listed(program::policy_names) + " [all]");
    flags.add("--hybrid-group", "N",
              "data-parallel ranks of a shard group under hybrid_shard, hybrid_optimizer and secondary_shard [the "
              "smallest divisor of dp from 2 on; with "
              "--predict those of a node]");
    flags.add("--layers", "N", "blocks of 12 width^2 elements, each a group [4]");
    flags.add("--width", "N", "of the model [256]");
    flags.add("--vocabulary", "N", "a group of N width elements; 0 for none [4096]");
    flags.add("--shapes", "LIST", "groups of other sizes in place of these: element counts or shapes, 768x3072,1000");
    flags.add("-d,--datatype", "NAME", "double, float or bfloat16 (with fp32 sums and master weights) [float]");
    flags.add("--optimizer", "NAME", "adamw or sgd, which has momentum [adamw]");
    flags.add("--microbatches", "N", "per step [1]");
    flags.add("--prefetch", "off|on", "begin the next group's window before the work of this one [on]");
    flags.add(
        "--schedule", "LIST",
        "what the steps follow, each in turns with the others: none; hand (none, with --prefetch on and the overlap "
        "of those that follow one); or passes joined by +: prefetch:N (gathers start N windows ahead; with mpi a "
        "thread communicates meanwhile), overlap:N (reductions run beside the next backward pass too), keep or "
        "keep:BYTES (groups stay gathered where a rank then takes no more than that, or than none), "
        "gather_after_update, reduce_last (microbatches "
        "are reduced once) [none]");
    flags.add(
        "--overlap", "off|on",
        "on: threads of the engine's own communicate meanwhile; with threads in the steps of all schedules but none, "
        "with mpi in all steps [off; on with mpi and prefetch:N]");
    flags.add("--slow", "P[,turns]",
              "busy work of rank 0, or of another rank for each group and pass, takes P percent longer [0]");
    flags.add("--work", "here|elsewhere",
              "busy work takes the rank's processor, or leaves it free, as where an accelerator computes [here]");
    flags.add("--compute-us", "T", "busy work of each group's forward pass; the backward pass takes 2 T [1000]");
    flags.add("--tokens", "N",
              "busy work from operations instead: 2 N for each element, 4 N backward; needs --gflops");
    flags.add("--gflops", "R", "10^9 operations a second for --tokens");
    flags.add("-w,--warmup_iters", "N", "steps before the timing [3]");
    flags.add("--rounds", "N", "rounds in which all policies and variants take turns [21]");
    flags.add("--steps", "N", "of a turn, one behind the other: what the end of one gives the next is in them [1]");
    flags.add("--pin", "off|on", "bind rank r to the r-th processor that this process may use [off]");
    flags.add("--fit", "LIST",
              "files that collectives --json wrote: latency and bandwidth are fitted to them [to a few "
              "collectives of this run]");
    flags.add("--predict", "LIST", "train nothing; predict meshes DPxTPxCP, or default for 8 to 4096 ranks");
    flags.add("--ranks-per-node", "N", "of predicted meshes [8]");
    flags.add("--link-latency-us", "A[,B]",
              "in place of a fit, with --link-gbs: within a node, and across nodes [A]");
    flags.add("--link-gbs", "A[,B]", "10^9 bytes a second of each rank: within a node, and across nodes [A]");
    flags.add("--json", "FILE", "write the results as one JSON object");
    flags.add("--plot", "FILE", "draw the times of a step by policy, .png or .svg");
}

std::vector<program::MeshExtents> parse_meshes(const std::string& flag, const std::string& given) {
    std::vector<program::MeshExtents> meshes;
    for (const std::string& part : program::split_list(given)) {
        const program::MeshExtents mesh = program::parse_mesh(flag, part, most_ranks);
        for (const program::MeshExtents& earlier : meshes) {
            if (earlier.describe() == mesh.describe()) { throw program::bad_flag(flag, given, "each mesh once"); }
        }
        meshes.push_back(mesh);
    }
    return meshes;
}

/// --engine, --ranks, --mesh
void read_ranks(const program::Flags& flags, Options& o, std::size_t processes) {
    program::read_name(flags, "--engine", host_engine_names, o.engine);
    o.meshes = {{o.engine == EngineKind::self ? 1 : o.engine == EngineKind::mpi ? processes : 2, 1, 1}};
    program::read_count(flags, "--ranks", o.meshes[0].dp, 1, most_ranks);
    flags.use("--mesh", [&](const std::string& flag, const std::string& given) {
        if (flags.is_given("--ranks")) { throw program::InputError("--ranks and --mesh: expected one of the two"); }
        o.meshes = parse_meshes(flag, given);
    });
    for (const program::MeshExtents& mesh : o.meshes) { require_ranks(o.engine, mesh, processes); }
}

/// --predict, --ranks-per-node, --policy, --hybrid-group
void read_policies(const program::Flags& flags, Options& o) {
    flags.use("--predict", [&](const std::string& flag, const std::string& given) {
        if (given == "default") {
            for (std::size_t dp = 8; dp <= most_ranks; dp *= dp < 64 ? 8 : 4) { o.predict.push_back({dp, 1, 1}); }
        } else {
            o.predict = parse_meshes(flag, given);
        }
    });
    flags.use("--ranks-per-node", [&](const std::string& flag, const std::string& given) {
        if (o.predict.empty()) { throw program::bad_flag(flag, given, "a --predict with it"); }
        o.links.ranks_per_node = program::parse_count(flag, given, 1, most_ranks);
    });
    std::string policies = "all";
    flags.use("--policy", [&](const std::string&, const std::string& given) { policies = given; });
    for (const std::size_t i : program::parse_names("--policy", policies, program::policy_names)) {
        o.policies.push_back(static_cast<program::PolicyKind>(i));
    }
    flags.use("--hybrid-group", [&](const std::string& flag, const std::string& given) {
        o.hybrid_group = program::parse_count(flag, given, 1, most_ranks);
        for (const program::MeshExtents& mesh : o.predict.empty() ? o.meshes : o.predict) {
            if (mesh.dp % o.hybrid_group != 0) {
                throw program::bad_flag(flag, given, "a divisor of dp = " + std::to_string(mesh.dp));
            }
        }
    });
}

/// A flag and what it was given, as errors name them, where only `part` of that is wrong.
std::string part_of(const std::string& flag, const std::string& given, const std::string& part) {
    return flag + " '" + given + "': " + part;
}

/// "none", "hand", or passes joined by +, each at most once.
ScheduleChoice parse_schedule(const std::string& flag, const std::string& given, const std::string& text) {
    using Kind = ScheduleChoice::Kind;
    ScheduleChoice choice;
    choice.text = text;
    if (text == "none") { return choice; }
    choice.kind = text == "hand" ? Kind::hand : Kind::passes;
    if (text == "hand") { return choice; }
    for (std::size_t begin = 0; begin <= text.size();) {
        const std::size_t end = std::min(text.find('+', begin), text.size());
        const std::string pass = text.substr(begin, end - begin);
        begin = end + 1;
        const std::size_t colon = std::min(pass.find(':'), pass.size());
        const std::string name = pass.substr(0, colon);
        const std::string value = pass.substr(std::min(colon + 1, pass.size()));
        const auto once = [&](bool& is_there) {
            if (std::exchange(is_there, true)) { throw program::bad_flag(flag, given, "each pass once"); }
        };
        bool gathers_ahead = choice.depth > 0;
        if ((name == "prefetch" || name == "overlap") && !value.empty()) {
            once(gathers_ahead);
            choice.depth = program::parse_count(part_of(flag, given, name), value, 1, 4096);
            choice.overlaps_reductions = name == "overlap";
        } else if (name == "keep") {
            once(choice.keeps);
            if (!value.empty()) { choice.limit = program::parse_bytes(part_of(flag, given, name), value); }
        } else if (pass == "gather_after_update") {
            once(choice.gathers_after_update);
        } else if (pass == "reduce_last") {
            once(choice.reduces_last);
        } else {
            throw program::bad_flag(flag, given,
                                    "a list with commas of none, hand and passes joined by +: prefetch:N, overlap:N, "
                                    "keep, keep:BYTES, gather_after_update, reduce_last");
        }
    }
    return choice;
}

/// --schedule, --slow
void read_schedules(const program::Flags& flags, Options& o) {
    flags.use("--schedule", [&](const std::string& flag, const std::string& given) {
        o.schedules.clear();
        for (const std::string& part : program::split_list(given)) {
            const ScheduleChoice choice = parse_schedule(flag, given, part);
            for (const ScheduleChoice& earlier : o.schedules) {
                if (earlier.text == part) { throw program::bad_flag(flag, given, "each schedule once"); }
            }
            o.schedules.push_back(choice);
        }
    });
    flags.use("--slow", [&](const std::string& flag, const std::string& given) {
        const std::vector<std::string> parts = program::split_list(given);
        o.slow_in_turns = parts.size() == 2 && parts[1] == "turns";
        if (parts.size() > 1 && !o.slow_in_turns) { throw program::bad_flag(flag, given, "P or P,turns"); }
        o.slow_percent = parse_number(flag, parts[0], 0, 1000);
    });
}

void read_overlap(const program::Flags& flags, Options& o) {
    flags.use("--overlap", [&](const std::string& flag, const std::string& given) {
        if (given != "on" && given != "off") { throw program::bad_flag(flag, given, "off or on"); }
        if (given == "on" && o.engine == EngineKind::self) {
            throw program::bad_flag(flag, given, "an engine with several ranks");
        }
        o.overlap = given == "on";
    });
}

/// --compute-us, or --tokens and --gflops
void read_compute(const program::Flags& flags, Options& o) {
    flags.use("--compute-us", [&](const std::string& flag, const std::string& given) {
        if (flags.is_given("--tokens")) {
            throw program::InputError("--compute-us and --tokens: expected one of the two");
        }
        o.compute_us = parse_number(flag, given, 0, 1e8);
    });
    if (flags.is_given("--tokens") != flags.is_given("--gflops")) {
        throw program::InputError("--tokens and --gflops: expected both or none of the two");
    }
    program::read_count(flags, "--tokens", o.tokens, 1);
    flags.use("--gflops", [&](const std::string& flag, const std::string& given) {
        o.gflops = parse_number(flag, given, 1e-3, 1e9);
    });
}

/// "A" or "A,B"
std::vector<double> parse_pair(const std::string& flag, const std::string& given, double least, double most) {
    std::vector<double> values;
    for (const std::string& part : program::split_list(given)) {
        values.push_back(parse_number(flag, part, least, most));
    }
    if (values.size() > 2) { throw program::bad_flag(flag, given, "one number, or two with a comma"); }
    if (values.size() == 1) { values.push_back(values[0]); }
    return values;
}

/// --fit, or --link-latency-us and --link-gbs
void read_links(const program::Flags& flags, Options& o) {
    flags.use("--fit",
              [&](const std::string&, const std::string& given) { o.links.fit = program::split_list(given); });
    // Predicted meshes have no engine, unless one is named.
    if (o.predict.empty() || flags.is_given("--engine")) { o.links.fit_engine = o.engine; }
    const bool given_links = flags.is_given("--link-latency-us");
    if (given_links != flags.is_given("--link-gbs")) {
        throw program::InputError("--link-latency-us and --link-gbs: expected both or none of the two");
    }
    if (!given_links) { return; }
    if (!o.links.fit.empty()) { throw program::InputError("--fit and --link-gbs: expected one of the two"); }
    std::vector<double> latency;
    std::vector<double> bandwidth;
    flags.use("--link-latency-us",
              [&](const std::string& flag, const std::string& given) { latency = parse_pair(flag, given, 0, 1e6); });
    flags.use("--link-gbs", [&](const std::string& flag, const std::string& given) {
        bandwidth = parse_pair(flag, given, 1e-6, 1e6);
    });
    o.links.within = shardkit::planner::LinkModel{latency[0] * 1e-6, bandwidth[0] * 1e9};
    o.links.across = shardkit::planner::LinkModel{latency[1] * 1e-6, bandwidth[1] * 1e9};
}

}  // namespace

std::optional<Options> parse_command_line(int count, const char* const* arguments, std::string& help,
                                          std::size_t processes, bool spare_processor) {
    program::Flags flags(
        "Times training steps of a sharded model under each policy, or predicts them for other meshes.", "policies");
    add_flags(flags);
    if (!flags.parse(count, arguments, help)) { return std::nullopt; }

    Options o;
    o.processes_spare_one = spare_processor;
    read_ranks(flags, o, processes);
    read_policies(flags, o);
    read_model(flags, o);
    read_schedules(flags, o);
    read_overlap(flags, o);
    read_compute(flags, o);
    read_links(flags, o);
    program::read_name(flags, "--datatype", element_names, o.element);
    program::read_name(flags, "--optimizer", optimizer_names, o.optimizer);
    program::read_name(flags, "--prefetch", program::switch_names, o.prefetch);
    program::read_name(flags, "--work", work_names, o.work_elsewhere);
    program::read_name(flags, "--pin", program::switch_names, o.pin);
    program::read_count(flags, "--microbatches", o.microbatches, 1, most_microbatches);
    program::read_count(flags, "--warmup_iters", o.warmup, 0, 1'000'000);
    program::read_count(flags, "--rounds", o.rounds, 1, 1'000'000);
    program::read_count(flags, "--steps", o.steps, 1, 1000);
    program::read_file(flags, "--json", o.json);
    program::read_file(flags, "--plot", o.plot);
    return o;
}

}  // namespace benchmarks::policies
