// SPDX-License-Identifier: Apache-2.0
#include "command_line.hpp"

#include <algorithm>
#include <bit>
#include <filesystem>
#include <iterator>
#include <string>
#include <system_error>
#include <utility>

#include <shardkit/backend/host/processor.hpp>

#include "../../common/read_flag.hpp"

namespace train_gpt {

namespace {

namespace fs = std::filesystem;

void add_checkpoint_flags(program::Flags& flags, const std::string& when) {
    flags.add("--save", "DIR", "save model and optimizer to DIR/step-00000400 after the last step" + when);
    flags.add("--save-every", "N", "with --save: save after every N steps too");
    flags.add("--keep", "K", "with --save: keep only the newest K steps in DIR; 0 keeps all [0]");
    flags.add(
        "--resume", "DIR",
        "continue from the newest whole step in DIR, or from one step's folder; where --save names the same DIR "
        "and it has no step yet, begin a new run");
    flags.add("--init", "FILE", "take first values from a safetensors file with the names that --names says");
    flags.add("--names", "NAME",
              "shardkit, or gpt2 (GPT2LMHeadModel of transformers): names in the files of --save and --init "
              "[shardkit]");
}

/// Of both programs.
void add_flags(program::Flags& flags) {
    flags.add("--mesh", "DPxTPxCP",
              "data x tensor x context parallel ranks [2x1x1 with threads, else all processes]");
    flags.add("--policy", "NAME", std::string(program::policy_words) + " [full_shard]");
    flags.add("--steps", "N", "training steps in all, those before --resume included [400]");
    flags.add("--batch", "N", "sequences per step over all ranks and microbatches [16]");
    flags.add("--microbatches", "N", "parts in which a rank works through its sequences [1]");
    flags.add("--model", "NAME",
              "124M, 350M or 1.5B: a size of GPT-2, whose values the flags for shapes and --vocabulary change");
    flags.add("--vocabulary", "N",
              "how many tokens there are [256, the bytes of a text; 50257 with --tokens or --encoding]");
    flags.add("--sequence", "N", "tokens of a sequence [64]");
    flags.add("--layers", "N", "transformer blocks [4]");
    flags.add("--width", "N", "width of the residual stream [128]");
    flags.add("--heads", "N", "attention heads [4]");
    flags.add("--head", "NAME", "tied (logits from the token embedding) or untied [tied]");
    flags.add("--sequence-parallel", "on|off", "with tp: norms and residuals hold a part of the tokens [off]");
    flags.add("--context", "ring|gather", "with cp: how keys and values get to the queries [ring]");
    flags.add("--recompute", "on|off",
              "make what blocks need of their forward pass again in the backward pass, instead of keeping it [off]");
    flags.add("--experts", "E", "experts of a layer behind each block, with a router; 0 for none [0]");
    flags.add("--top", "K", "with --experts: how many a token uses [2]");
    flags.add("--ep", "N", "with --experts: ranks of dp x cp that share them [1]");
    flags.add("--capacity", "N",
              "with --experts: rows of a pass for each expert, past which a token goes without; 0 for no limit [0]");
    flags.add("--dtype", "NAME", "fp64, fp32 or bf16: type of parameters and gradients [fp32]");
    flags.add("--lr", "X", "learning rate [1e-3; 0.1 with sgd, 3e-4 with lion]");
    flags.add("--weight-decay", "X", "weight decay of the matrices [0.01]");
    flags.add("--clip", "X", "largest global gradient norm; 0 for no clipping [1; 0 with --release on]");
    flags.add("--seed", "N", "decides first values, data order and samples [1]");
    flags.add("--text", "FILE", "what to train on [this repository's headers and documentation]");
    flags.add("--tokens", "FILE", "train on GPT-2's tokens in a file as llm.c writes them (.bin), instead of a text");
    flags.add(
        "--encoding", "FILE",
        "write the text, and samples, in the byte pair encoding of a merges.txt of GPT-2 [a token for each byte]");
    flags.add_switch("--plan",
                     "print memory and traffic per rank for --mesh, of any size, and stop; files are "
                     "checked, none is written");
    flags.add("--slices", "S",
              "parts of the batch, a power of two: a rank works through S / dp of them, one in each microbatch, and "
              "the run has the same bits on any number of ranks [not cut]");
    flags.add(
        "--release", "on|off",
        "update each group in the backward pass, behind its gradients' reduction, and give them back: one pass a "
        "step, no clipping, no norm, --schedule none [off]");
    flags.add(
        "--schedule", "NAME",
        "when a step communicates: none (when a verb is called), prefetch or prefetch:N (gathers start N windows "
        "ahead), or auto (the one that is predicted to wait least: none, groups that stay gathered where memory is "
        "left, or, with threads or mpi and a processor to spare, gathers a window ahead) [auto; on GPUs, whose "
        "speeds it "
        "does not know, none]");
    flags.add("--trace", "FILE",
              "if steps follow a schedule: write the last step of every rank as it was measured, for Perfetto or "
              "chrome://tracing");
    flags.add("--memory-limit", "BYTES",
              "largest memory of a rank, with K, M or G behind it [with auto: what a step without a schedule takes]");
}

/// Of the program for hosts alone.
void add_host_flags(program::Flags& flags) {
    flags.add("--engine", "NAME", "threads (ranks in this process) or mpi (processes of mpirun) [threads]");
    flags.add(
        "--ranks-per-host", "N",
        "with --engine mpi or --plan: count bytes between hosts as if each N ranks, in their order, were a host "
        "[with mpi the hosts that there are; with --plan all ranks on one]");
    flags.add(
        "--gather", "NAME",
        "what gathers of the blocks carry: full for elements of --dtype, or 8-bit codes, e4m3 (a scale for each "
        "parameter) or int8 (a scale for each 64), with fp32, adamw and threads [full]");
    flags.add("--optimizer", "NAME", "adamw, sgd (momentum 0.9), lion or muon (of the blocks' matrices) [adamw]");
    flags.add("--states", "NAME",
              "how AdamW's states are stored: full, bf16, or block8 (8 bits, a scale for each 32) [full]");
    flags.add("--offload", "NAME",
              "with --plan: where states and masters lie, on an engine whose memory is a device's: none; states for "
              "pinned memory of the host, from which pieces come and go; update for updates on the host [none]");
    flags.add("--master", "NAME",
              "fp32 masters of bf16 parameters: kept, split (16 bits beside each parameter) or none [kept]");
    flags.add("--json", "FILE",
              "write the results as one JSON object; an interrupted run writes what it has reached");
    flags.add("--plot", "FILE", "draw the loss curve, .png or .svg");
    flags.add("--schedule-out", "FILE", "write the step as a table of its operations, and what --schedule changed");
    flags.add(
        "--hashes", "FILE",
        "write a hash of each group's gradients, states and parameters in every step, which no mesh and no policy "
        "changes, for compare_hashes.py");
    flags.add("--replay", "SLICE",
              "with --slices, of one data-parallel rank: compute one slice of the step behind --resume alone, and "
              "print its gradients' hashes, which --hashes has of the whole run");
    flags.add("--verify-every", "N",
              "compare what several ranks hold after every N steps, and end with what differs; 0 for never [0]");
    flags.add("--sample", "N", "generate N bytes, or tokens of --encoding, after training [0]");
    flags.add("--deadline", "SECONDS",
              "end the run when a rank waits for so long for others in a call, and name those; warn after half of it "
              "[threads: never; mpi: 600]");
    flags.add(
        "--record", "PREFIX",
        "write each rank's last calls to PREFIX-rank-N.json when a rank fails, a deadline passes or SIGUSR1 comes, "
        "for who_is_missing");
    flags.add_switch("--stragglers",
                     "say how long the ranks let each other wait, in which of the last 100 steps, for what; the "
                     "measured memory has the calls that are kept for it");
    flags.add("--slow", "RANK:SECONDS", "let a rank sleep so long before each step, to see what is told of it");
    add_checkpoint_flags(flags, ", and when SIGTERM or SIGINT ends the run after its current step");
}

void read_checkpoint_flags(const program::Flags& flags, Options& o) {
    program::read_file(flags, "--save", o.save);
    program::read_count(flags, "--save-every", o.save_every, 1);
    program::read_count(flags, "--keep", o.keep, 0);
    program::read_file(flags, "--resume", o.resume);
    program::read_file(flags, "--init", o.init);
    program::read_name(flags, "--names", name_kinds, o.names);
    const auto require = [&](const char* flag, const char* needed, bool is_given) {
        if (flags.is_given(flag) && !is_given) {
            throw program::InputError(flag, " alone: expected ", needed, " as well");
        }
    };
    require("--save-every", "--save", !o.save.empty());
    require("--keep", "--save", !o.save.empty());
    require("--names", "--save or --init", !o.save.empty() || !o.init.empty());
}

/// Reads what is told about ranks that others wait for.
void read_record_flags(const program::Flags& flags, Options& o) {
    program::read_not_negative(flags, "--deadline", o.deadline);
    if (flags.is_given("--deadline") && o.deadline < 0.001) {
        throw program::InputError("--deadline: expected a millisecond or more");
    }
    program::read_file(flags, "--record", o.record);
    o.stragglers = flags.is_given("--stragglers");
    flags.use("--slow", [&](const std::string& flag, const std::string& given) {
        const std::size_t colon = std::min(given.find(':'), given.size() - 1);
        o.slow_rank = program::parse_count(flag, given.substr(0, colon), 0, o.mesh.world() - 1);
        o.slow_seconds = program::parse_not_negative(flag, given.substr(colon + 1));
    });
    std::error_code unknown;
    const fs::path folder = fs::path(o.record).parent_path();
    if (!folder.empty() && !fs::is_directory(folder, unknown)) {
        throw program::InputError("--record '", o.record, "': expected a folder that exists before the prefix");
    }
}

/// Refuses slices that the ranks or the batch cannot have.
void validate_slices(const Options& o) {
    const std::string given = "--slices " + std::to_string(o.slices);
    if (!std::has_single_bit(o.slices)) { throw program::InputError(given, ": expected a power of two"); }
    if (!std::has_single_bit(o.mesh.dp) || o.slices % o.mesh.dp != 0) {
        throw program::InputError(given, " with --mesh ", o.mesh.describe(),
                                  ": expected data-parallel ranks that are a power of two and divide them");
    }
    if (o.mesh.cp != 1) {
        throw program::InputError(given, " with --mesh ", o.mesh.describe(),
                                  ": expected cp = 1, as ranks of cp add parts of one slice");
    }
    if (o.batch % o.slices != 0) {
        throw program::InputError("--batch ", o.batch, ": expected a multiple of ", given);
    }
}

/// Reads which slice is computed alone, and refuses what no single slice has.
void read_replay(const program::Flags& flags, Options& o) {
    if (!flags.is_given("--replay")) { return; }
    std::size_t slice = 0;
    program::read_count(flags, "--replay", slice, 0);
    if (slice >= o.slices) {
        throw program::InputError(
            "--replay ", slice, " with ",
            (o.slices == 0 ? std::string("no --slices") : "--slices " + std::to_string(o.slices)),
            ": expected the number of a slice, from 0");
    }
    if (o.mesh.dp != 1) {
        throw program::InputError("--replay with --mesh ", o.mesh.describe(), ": expected dp = 1");
    }
    for (const char* const flag : {"--json", "--plot", "--schedule-out", "--trace", "--save", "--sample", "--release",
                                   "--schedule", "--verify-every", "--stragglers", "--slow"}) {
        if (flags.is_given(flag)) {
            throw program::InputError("--replay with ", flag, ": expected a slice alone, and no step");
        }
    }
    o.replay = slice;
    o.schedule = {ScheduleChoice::Kind::none, 0};
}

/// Says whether two paths name one regular file, or one that is not there yet.
bool same_file(const fs::path& a, const fs::path& b) {
    std::error_code unknown;
    if (fs::exists(a, unknown) && !fs::is_regular_file(a, unknown)) { return false; }
    return fs::equivalent(a, b, unknown) || fs::weakly_canonical(a, unknown) == fs::weakly_canonical(b, unknown);
}
/// Says whether `file` is there, somewhere in `folder`.
bool lies_in(const fs::path& file, const fs::path& folder) {
    std::error_code unknown;
    if (!fs::is_directory(folder, unknown) || !fs::is_regular_file(file, unknown)) { return false; }
    const fs::path above = fs::weakly_canonical(folder, unknown) / "";
    const fs::path whole = fs::weakly_canonical(file, unknown);
    return std::mismatch(above.begin(), std::prev(above.end()), whole.begin(), whole.end()).first ==
           std::prev(above.end());
}
/// Refuses to write a result over what is read.
void validate_files(const Options& o) {
    for (const auto& [flag, output] : o.outputs()) {
        for (const auto& [other, input] : {std::pair<const char*, const std::string&>{"--text", o.text},
                                           {"--tokens", o.tokens},
                                           {"--encoding", o.encoding},
                                           {"--init", o.init},
                                           {"--resume", o.resume}}) {
            const bool same = same_file(output, input);
            if (output.empty() || input.empty() || !(same || lies_in(output, input))) { continue; }
            throw program::InputError(flag, " '", output, "' would be written over ", same ? "" : "a file of ", other,
                                      " '", input, "': expected a file of its own");
        }
    }
}

/// Reads what is given of all flags, and checks it. `o`: the engine, and what it has without flags.
Options read_options(const program::Flags& flags, Options o, std::size_t processes) {
    program::read_name(flags, "--release", program::switch_names, o.release);
    const bool releases = o.release == sk::GradientRelease::at_update;
    if (releases) { o.clip = 0; }
    const bool on_gpus = o.engine == EngineKind::nccl;
    o.schedule = {releases || on_gpus ? ScheduleChoice::Kind::none : ScheduleChoice::Kind::automatic, 0};
    flags.use("--mesh", [&](const auto& flag, const auto& given) { o.mesh = program::parse_mesh(flag, given); });
    if (o.engine == EngineKind::threads) {
        o.spare_processor = shardkit::host::detail::allowed_cpus() > o.mesh.world();
    }
    flags.use("--policy",
              [&](const auto& flag, const auto& given) { o.policy = program::parse_policy(flag, given); });
    program::read_count(flags, "--ranks-per-host", o.ranks_per_host, 1);
    program::read_count(flags, "--steps", o.steps, 1);
    program::read_count(flags, "--every", o.every, 1);
    o.every = std::min(o.every, o.steps);  // there is memory for the losses of so many
    program::read_name(flags, "--graph", program::switch_names, o.graph);
    program::read_count(flags, "--batch", o.batch, 1);
    program::read_count(flags, "--microbatches", o.microbatches, 1);
    program::read_count(flags, "--slices", o.slices, 1);
    if (o.slices > 0) {
        if (flags.is_given("--microbatches")) {
            throw program::InputError(
                "--microbatches with --slices: expected one of them; a rank's microbatches are "
                "its slices");
        }
        validate_slices(o);
        o.microbatches = o.slices / o.mesh.dp;
    }
    program::read_file(flags, "--tokens", o.tokens);
    program::read_file(flags, "--encoding", o.encoding);
    if (!(o.tokens.empty() && o.encoding.empty())) { o.model.vocabulary = gpt2_vocabulary; }
    flags.use("--model", [&](const auto& flag, const auto& given) {
        o.model = models[program::parse_name(flag, given, model_names)];
    });
    program::read_count(flags, "--vocabulary", o.model.vocabulary, 1, most_tokens);
    program::read_count(flags, "--sequence", o.model.sequence, 1);
    program::read_count(flags, "--layers", o.model.layers, 1);
    program::read_count(flags, "--width", o.model.width, 1);
    program::read_count(flags, "--heads", o.model.heads, 1);
    program::read_name(flags, "--head", head_names, o.model.head);
    program::read_count(flags, "--experts", o.model.experts, 0);
    program::read_count(flags, "--top", o.model.top, 1);
    program::read_count(flags, "--ep", o.ep, 1);
    program::read_count(flags, "--capacity", o.model.capacity, 0);
    program::read_name(flags, "--sequence-parallel", program::switch_names, o.sequence_parallel);
    program::read_name(flags, "--context", exchange_names, o.context);
    program::read_name(flags, "--recompute", program::switch_names, o.model.recompute);
    program::read_name(flags, "--dtype", dtype_names, o.dtype);
    program::read_name(flags, "--gather", gather_names, o.gather);
    program::read_name(flags, "--optimizer", optimizer_names, o.optimizer);
    program::read_name(flags, "--states", state_names, o.states);
    program::read_name(flags, "--master", master_names, o.master);
    program::read_name(flags, "--offload", offload_names, o.offload);
    if (o.optimizer == OptimizerKind::sgd) { o.learning_rate = 0.1; }
    if (o.optimizer == OptimizerKind::lion) { o.learning_rate = 3e-4; }
    program::read_not_negative(flags, "--lr", o.learning_rate);
    program::read_not_negative(flags, "--weight-decay", o.weight_decay);
    program::read_not_negative(flags, "--clip", o.clip);
    flags.use("--schedule", [&](const auto& flag, const auto& given) {
        o.schedule = parse_schedule(flag, given);
        if (on_gpus && o.schedule.kind == ScheduleChoice::Kind::automatic) {
            throw program::bad_flag(flag, given,
                                    "none, prefetch or prefetch:N: auto knows the speeds of hosts alone");
        }
    });
    flags.use("--memory-limit",
              [&](const auto& flag, const auto& given) { o.memory_limit = program::parse_bytes(flag, given); });
    program::read_count(flags, "--seed", o.seed, 0);
    program::read_file(flags, "--text", o.text);
    if (!o.text.empty() && !o.tokens.empty()) {
        throw program::InputError("--text with --tokens: expected one of them");
    }
    program::read_file(flags, "--json", o.json);
    program::read_file(flags, "--plot", o.plot);
    program::read_file(flags, "--schedule-out", o.schedule_out);
    program::read_file(flags, "--trace", o.trace);
    program::read_file(flags, "--hashes", o.hashes);
    program::read_count(flags, "--verify-every", o.verify_every, 0);
    if (!o.trace.empty() && o.schedule.kind == ScheduleChoice::Kind::none) {
        throw program::InputError("--trace with --schedule none: expected prefetch", (on_gpus ? "" : " or auto"));
    }
    if (!o.trace.empty() && o.graph) {
        throw program::InputError("--trace with --graph on: expected off, as what a graph launches has no times");
    }
    program::read_count(flags, "--sample", o.sample, 0);
    read_checkpoint_flags(flags, o);
    read_record_flags(flags, o);
    read_replay(flags, o);
    validate_files(o);
    o.action = flags.is_given("--plan") ? Options::Action::plan : Options::Action::train;
    if (flags.is_given("--ranks-per-host") && o.engine != EngineKind::mpi && o.action == Options::Action::train) {
        throw program::InputError("--ranks-per-host with --engine ", program::name_of(engine_names, o.engine),
                                  ", whose ranks are on one host: expected --engine mpi or --plan");
    }
    if (o.engine != EngineKind::threads && o.action == Options::Action::train && o.mesh.world() != processes) {
        const bool of_mpi = o.engine == EngineKind::mpi;
        throw program::InputError("--mesh ", o.mesh.describe(), " has ", o.mesh.world(), " ranks, but this job",
                                  (of_mpi ? " of --engine mpi has " : " has "), processes, " processes: expected ",
                                  (of_mpi ? "mpirun -n " + std::to_string(o.mesh.world()) + ", or " : std::string()),
                                  "--mesh ", processes, "x1x1");
    }
    validate(o);
    return o;
}

/// That tp divides what it splits of the model, and cp, with 2 chunks a rank, every sequence.
void validate_split(const Options& o) {
    const auto by = [&](const char* axis, std::size_t extent) {
        return " of --mesh " + o.mesh.describe() + ": expected a multiple of " + axis + " = " +
               std::to_string(extent);
    };
    if (o.model.heads % o.mesh.tp != 0) {
        throw program::InputError("--heads ", o.model.heads, by("tp", o.mesh.tp), ", which splits them");
    }
    if (o.model.rows_of_vocabulary() % o.mesh.tp != 0) {
        throw program::InputError("--mesh ", o.mesh.describe(), ": expected a tp that divides the vocabulary of ",
                                  o.model.rows_of_vocabulary());
    }
    const Split split = o.split();
    if (o.model.sequence % split.token_unit() != 0) {
        const std::string tokens =
            split.splits_tokens() ? "2 * cp and, with --sequence-parallel on, of cp * tp" : "2 * cp";
        throw program::InputError("--sequence ", o.model.sequence, " with --mesh ", o.mesh.describe(),
                                  ": expected a multiple of ", split.token_unit(), ", of ", tokens);
    }
}

/// What a layer of experts needs of the rest.
void validate_experts(const Options& o) {
    const std::string experts = "--experts " + std::to_string(o.model.experts);
    const std::string ep = "--ep " + std::to_string(o.ep);
    if (o.model.experts == 0) {
        if (o.ep > 1) { throw program::InputError(ep, ": expected --experts, whose ranks it counts"); }
        return;
    }
    if (o.model.top > o.model.experts) {
        throw program::InputError("--top ", o.model.top, " of ", experts, ": expected at most as many");
    }
    if (o.model.experts % o.ep != 0) { throw program::InputError(experts, ": expected a multiple of ", ep); }
    const std::string mesh = " with --mesh " + o.mesh.describe();
    if (o.mesh.dp * o.mesh.cp % o.ep != 0 || (o.ep % o.mesh.cp != 0 && o.mesh.cp % o.ep != 0)) {
        throw program::InputError(ep, mesh, ": expected a divisor of dp x cp that is a factor or a multiple of cp");
    }
    const std::string policy = " with --policy " + o.policy.text();
    if (program::has_groups(o.policy.kind) && o.policy.group * o.mesh.cp % o.ep != 0) {
        throw program::InputError(ep, mesh, policy, ": expected a divisor of a group's ", o.policy.group * o.mesh.cp,
                                  " data ranks");
    }
    if (o.slices > 0 && o.ep > 1 && o.dtype == Dtype::bf16) {
        throw program::InputError("--slices ", o.slices, " with ", ep, " and --dtype bf16, whose ",
                                  "gradients would be rounded once for several ranks: expected fp32 or fp64");
    }
    if (o.split().splits_tokens()) {
        throw program::InputError(experts, mesh, " and --sequence-parallel on: expected off, as each rank of tp ",
                                  "sends all of its tokens to its part of the experts");
    }
    if (o.graph && o.model.capacity == 0) {
        throw program::InputError(experts, " and --graph on with --capacity 0: expected a capacity, as without one ",
                                  "the host reads in each pass how many rows each expert gets");
    }
    if (o.gather != GatherKind::full) { throw program::InputError(experts, ": expected --gather full"); }
    if (o.names != NameKind::shardkit) { throw program::InputError(experts, ": expected --names shardkit"); }
}

}  // namespace

void validate(const Options& o) {
    const std::string mesh = o.mesh.describe();
    validate_experts(o);
    if (o.states != shardkit::StateFormat::full && (o.dtype == Dtype::fp64 || o.optimizer != OptimizerKind::adamw)) {
        throw program::InputError("--states ", program::name_of(state_names, o.states),
                                  ": expected --optimizer adamw, and --dtype fp32 or bf16");
    }
    if (o.gather != GatherKind::full &&
        (o.dtype != Dtype::fp32 || o.optimizer != OptimizerKind::adamw || o.states != shardkit::StateFormat::full ||
         o.offload != shardkit::Offload::none)) {
        throw program::InputError("--gather ", program::name_of(gather_names, o.gather),
                                  ": this program has it with --dtype fp32, --optimizer adamw and --states full "
                                  "alone, and masters of codes are not offloaded");
    }
    if (o.gather != GatherKind::full && (o.policy.kind == program::PolicyKind::hybrid_optimizer ||
                                         o.policy.kind == program::PolicyKind::secondary_shard)) {
        throw program::InputError("--gather ", program::name_of(gather_names, o.gather), " with --policy ",
                                  o.policy.text(),
                                  ": expected one that has all masters in each group, as hybrid_shard:N");
    }
    if (o.master != shardkit::MasterWeights::kept && o.dtype != Dtype::bf16) {
        throw program::InputError("--master ", program::name_of(master_names, o.master),
                                  ": expected --dtype bf16, which has masters");
    }
    if (o.offload != shardkit::Offload::none &&
        (o.action == Options::Action::train || o.optimizer == OptimizerKind::muon)) {
        throw program::InputError(
            "--offload ", program::name_of(offload_names, o.offload),
            ": the engines of this program have the host's memory, where nothing is to be moved, "
            "and Muon needs its states on the device; expected --plan, and another optimizer "
            "(examples/cuda_trainer trains with --offload)");
    }
    if (o.engine == EngineKind::threads && o.action == Options::Action::train && o.mesh.world() > 1024) {
        throw program::InputError("--mesh ", mesh,
                                  ": expected at most 1024 ranks as threads of one process; --plan takes any");
    }
    o.policy.require_fits("--policy", o.mesh.dp, " of --mesh " + mesh);
    if (o.mesh.dp > 0xffff'ffffU || o.mesh.tp > 0xffffU || o.mesh.cp > 0xffffU) {
        throw program::bad_flag("--mesh", mesh, "at most 4294967295x65535x65535 ranks");
    }
    const std::string batch = "--batch " + std::to_string(o.batch);
    if (o.batch % o.mesh.dp != 0) {
        throw program::InputError(batch, ": expected a multiple of the ", o.mesh.dp,
                                  " data-parallel ranks of --mesh ", mesh);
    }
    if (o.batch % o.microbatches != 0) {
        throw program::InputError(batch, ": expected a multiple of --microbatches ", o.microbatches);
    }
    if (o.sequences_per_rank() < o.microbatches) {
        throw program::InputError(batch, ": expected at least ", o.mesh.dp, " x ", o.microbatches,
                                  ", a sequence for each data-parallel rank and microbatch");
    }
    if (o.release == sk::GradientRelease::at_update) {
        const auto refuse = [](const std::string& given, const char* expected) {
            throw program::InputError("--release on with ", given, ": expected ", expected);
        };
        if (o.clip > 0) { refuse("--clip", "--clip 0, as a norm needs the gradients of all groups at once"); }
        if (o.microbatches > 1) {
            refuse("--microbatches " + std::to_string(o.microbatches),
                   "1, as gradients stay in memory until the last one");
        }
        if (o.schedule.kind != ScheduleChoice::Kind::none) {
            refuse("--schedule " + o.schedule.text(), "none, as a schedule has its updates at the end");
        }
        if (!o.schedule_out.empty()) { refuse("--schedule-out", "a step with its updates at the end"); }
    }
    validate_split(o);
    constexpr std::size_t many = 1'000'000'000;
    if (o.steps > many) { throw program::bad_flag("--steps", std::to_string(o.steps), "at most 1000000000"); }
    if (o.sample > many) { throw program::bad_flag("--sample", std::to_string(o.sample), "at most 1000000000"); }
    if (o.sample > 0 && o.encoding.empty() && (o.model.vocabulary > bytes_vocabulary || !o.tokens.empty())) {
        throw program::InputError(
            "--sample with ",
            (o.tokens.empty() ? "--vocabulary " + std::to_string(o.model.vocabulary) : std::string("--tokens")),
            ": expected --encoding, or a text and at most its 256 bytes, which can be printed");
    }
    try {
        validate(o.model, o.pass_shape().batch);
        checked_product(o.batch, o.model.sequence, "--batch x --sequence");
    } catch (const std::invalid_argument& error) { throw program::InputError(error.what()); }
    if (!o.plot.empty() && !o.plot.ends_with(".png") && !o.plot.ends_with(".svg")) {
        throw program::bad_flag("--plot", o.plot, "a name that ends in .png or .svg");
    }
    if (o.engine == EngineKind::nccl && o.dtype == Dtype::fp64) {
        throw program::bad_flag("--dtype", std::string(program::name_of(dtype_names, o.dtype)), "fp32 or bf16");
    }
}

std::optional<Options> parse_command_line(int count, const char* const* arguments, std::string& help,
                                          std::size_t processes, std::size_t ranks_per_host, bool spare_processor) {
    program::Flags flags("Trains a GPT with sharded parameters, gradients and optimizer states.", "train_gpt");
    add_flags(flags);
    add_host_flags(flags);
    if (!flags.parse(count, arguments, help)) { return std::nullopt; }
    Options o;
    program::read_name(flags, "--engine", host_engine_names, o.engine);
    if (o.engine == EngineKind::mpi) {
        o.mesh = {processes, 1, 1};
        o.ranks_per_host = ranks_per_host;
        o.spare_processor = spare_processor;
    }
    return read_options(flags, std::move(o), processes);
}

std::optional<Options> parse_gpu_command_line(int count, const char* const* arguments, std::string& help,
                                              std::size_t processes) {
    program::Flags flags(
        "Trains train_gpt's model on GPUs: one, or as many as there are processes, where RANK, WORLD_SIZE, "
        "LOCAL_RANK, "
        "MASTER_ADDR and MASTER_PORT are set as torchrun does.",
        "gpt");
    add_flags(flags);
    flags.add("--graph", "on|off", "all steps but the first are launches of one CUDA graph [off]");
    flags.add("--every", "N", "steps between two lines of output [20]");
    add_checkpoint_flags(flags, "");
    if (!flags.parse(count, arguments, help)) { return std::nullopt; }
    Options o;
    o.engine = EngineKind::nccl;
    o.every = 20;
    o.mesh = {processes, 1, 1};
    return read_options(flags, std::move(o), processes);
}

}  // namespace train_gpt
