// SPDX-License-Identifier: Apache-2.0
#include "command_line.hpp"

#include <algorithm>
#include <bit>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <shardkit/backend/host/processor.hpp>

#include "../../common/read_flag.hpp"

namespace train_gpt {

namespace {

namespace fs = std::filesystem;

using program::InputError, program::into, program::into_count, program::into_name, program::require;
using Word = const std::string&;

/// Each is read in this order: what one says of another's default stands before it.
void add_flags(program::Flags& flags, Options& o) {
    flags.add("--optimizer", "NAME", "adamw, sgd (momentum 0.9), lion or muon (of the blocks' matrices) [adamw]",
              [&o](Word flag, Word given) {
                  into_name(o.optimizer, optimizer_names)(flag, given);
                  if (o.optimizer == OptimizerKind::sgd) { o.learning_rate = 0.1; }
                  if (o.optimizer == OptimizerKind::lion) { o.learning_rate = 3e-4; }
              });
    flags.add("--states", "NAME",
              "how AdamW's states are stored: full, bf16, or block8 (8 bits, a scale for each 32) [full]",
              into_name(o.states, state_names));
    flags.add("--master", "NAME",
              "fp32 masters of bf16 parameters: kept, split (16 bits beside each parameter) or none [kept]",
              into_name(o.master, master_names));
    flags.add("--mesh", "DPxTPxCP", "data x tensor x context parallel ranks [2x1x1 with threads, else all processes]",
              [&o](Word flag, Word given) { o.mesh = program::parse_mesh(flag, given); });
    flags.add("--policy", "NAME", std::string(program::policy_words) + " [full_shard]",
              into(o.policy, program::parse_policy));
    flags.add("--steps", "N", "training steps in all, those before --resume included [400]",
              into_count(o.steps, 1, 1'000'000'000));
    flags.add("--batch", "N", "sequences per step over all ranks and microbatches [16]", into_count(o.batch, 1));
    flags.add("--microbatches", "N", "parts in which a rank works through its sequences [1]",
              into_count(o.microbatches, 1));
    flags.add("--text", "FILE", "what to train on [this repository's headers and documentation]",
              into(o.text, program::parse_file));
    const auto gpt2_tokens = [&o](std::string& file) {
        return [&](Word flag, Word given) {
            file = program::parse_file(flag, given);
            o.model.vocabulary = gpt2_vocabulary;
        };
    };
    flags.add("--tokens", "FILE", "train on GPT-2's tokens in a file as llm.c writes them (.bin), instead of a text",
              gpt2_tokens(o.tokens));
    flags.add(
        "--encoding", "FILE",
        "write the text, and samples, in the byte pair encoding of a merges.txt of GPT-2 [a token for each byte]",
        gpt2_tokens(o.encoding));
    flags.add("--model", "NAME",
              "124M, 350M or 1.5B: a size of GPT-2, whose values the flags for shapes and --vocabulary change",
              [&o](Word flag, Word given) { o.model = models[program::parse_name(flag, given, model_names)]; });
    flags.add("--vocabulary", "N",
              "how many tokens there are [256, the bytes of a text; 50257 with --tokens or --encoding]",
              into_count(o.model.vocabulary, 1, most_tokens));
    flags.add("--sequence", "N", "tokens of a sequence [64]", into_count(o.model.sequence, 1));
    flags.add("--layers", "N", "transformer blocks [4]", into_count(o.model.layers, 1));
    flags.add("--width", "N", "width of the residual stream [128]", into_count(o.model.width, 1));
    flags.add("--heads", "N", "attention heads [4]", into_count(o.model.heads, 1));
    flags.add("--head", "NAME", "tied (logits from the token embedding) or untied [tied]",
              into_name(o.model.head, head_names));
    flags.add("--sequence-parallel", "on|off", "with tp: norms and residuals hold a part of the tokens [off]",
              into_name(o.sequence_parallel, program::switch_names));
    flags.add("--context", "ring|gather", "with cp: how keys and values get to the queries [ring]",
              into_name(o.context, exchange_names));
    flags.add("--recompute", "on|off",
              "make what blocks need of their forward pass again in the backward pass, instead of keeping it [off]",
              into_name(o.model.recompute, program::switch_names));
    flags.add("--experts", "E", "experts of a layer behind each block, with a router; 0 for none [0]",
              into_count(o.model.experts, 0));
    flags.add("--top", "K", "with --experts: how many a token uses [2]", into_count(o.model.top, 1));
    flags.add("--ep", "N", "with --experts: ranks of dp x cp that share them [1]", into_count(o.ep, 1));
    flags.add("--capacity", "N",
              "with --experts: rows of a pass for each expert, past which a token goes without; 0 for no limit [0]",
              into_count(o.model.capacity, 0));
    flags.add("--dtype", "NAME", "fp64, fp32 or bf16: type of parameters and gradients [fp32]",
              into_name(o.dtype, dtype_names));
    flags.add(
        "--release", "on|off",
        "update each group in the backward pass, behind its gradients' reduction, and give them back: one pass a "
        "step, no clipping, no norm, --schedule none [off]",
        [&o](Word flag, Word given) {
            if (program::parse_name(flag, given, program::switch_names) == 0) { return; }
            o.release = sk::GradientRelease::at_update;
            o.clip = 0;
            o.schedule = {};
        });
    flags.add("--lr", "X", "learning rate [1e-3; 0.1 with sgd, 3e-4 with lion]",
              into(o.learning_rate, program::parse_not_negative));
    flags.add("--weight-decay", "X", "weight decay of the matrices [0.01]",
              into(o.weight_decay, program::parse_not_negative));
    flags.add("--clip", "X", "largest global gradient norm; 0 for no clipping [1; 0 with --release on]",
              into(o.clip, program::parse_not_negative));
    flags.add("--seed", "N", "decides first values, data order and samples [1]", into_count(o.seed, 0));
    flags.add_switch("--plan",
                     "print memory and traffic per rank for --mesh, of any size, and stop; files are "
                     "checked, none is written");
    flags.add("--slices", "S",
              "parts of the batch, a power of two: a rank works through S / dp of them, one in each microbatch, and "
              "the run has the same bits on any number of ranks [not cut]",
              into_count(o.slices, 1));
    flags.add(
        "--schedule", "NAME",
        "when a step communicates: none (when a verb is called), prefetch or prefetch:N (gathers start N windows "
        "ahead), or auto (the one that is predicted to wait least: none, groups that stay gathered where memory is "
        "left, or, with threads or mpi and a processor to spare, gathers a window ahead) [auto; on GPUs, whose "
        "speeds it does not know, none]",
        [&o](Word flag, Word given) {
            o.schedule = parse_schedule(flag, given);
            if (o.engine == EngineKind::nccl && o.schedule.kind == ScheduleChoice::Kind::automatic) {
                throw program::bad_flag(flag, given,
                                        "none, prefetch or prefetch:N: auto knows the speeds of hosts alone");
            }
        });
    flags.add("--trace", "FILE",
              "if steps follow a schedule: write the last step of every rank as it was measured, for Perfetto or "
              "chrome://tracing",
              into(o.trace, program::parse_file));
    flags.add("--memory-limit", "BYTES",
              "largest memory of a rank, with K, M or G behind it [with auto: what a step without a schedule takes]",
              into(o.memory_limit, program::parse_bytes));
    flags.add(
        "--ranks-per-host", "N",
        "with --engine mpi or --plan: count bytes between hosts as if each N ranks, in their order, were a host "
        "[with mpi the hosts that there are; with --plan all ranks on one]",
        into_count(o.ranks_per_host, 1));
    flags.add("--json", "FILE",
              "write the results as one JSON object; an interrupted run writes what it has reached, here and to "
              "--plot",
              into(o.json, program::parse_file));
    flags.add("--plot", "FILE", "draw the loss curve, .png or .svg", into(o.plot, program::parse_file));
    flags.add("--schedule-out", "FILE", "write the step as a table of its operations, and what --schedule changed",
              into(o.schedule_out, program::parse_file));
    flags.add(
        "--hashes", "FILE",
        "write a hash of each group's gradients, states and parameters in every step, which no mesh and no policy "
        "changes, for compare_hashes.py",
        into(o.hashes, program::parse_file));
    flags.add("--verify-every", "N",
              "compare what several ranks hold after every N steps, and end with what differs; 0 for never [0]",
              into_count(o.verify_every, 0));
    flags.add("--sample", "N", "generate N bytes, or tokens of --encoding, after training [0]",
              into_count(o.sample, 0, 1'000'000'000));
    flags.add("--deadline", "SECONDS",
              "end the run when a rank waits for so long for others in a call, and name those; warn after half of it "
              "[threads: never; mpi: 600]",
              [&o](Word flag, Word given) {
                  o.deadline = program::parse_not_negative(flag, given);
                  if (o.deadline < 0.001) { throw InputError("--deadline: expected a millisecond or more"); }
              });
    flags.add(
        "--record", "PREFIX",
        "write each rank's last calls to PREFIX-rank-N.json when a rank fails, a deadline passes or SIGUSR1 comes, "
        "for who_is_missing",
        [&o](Word flag, Word given) {
            o.record = program::parse_file(flag, given);
            std::error_code unknown;
            const fs::path folder = fs::path(o.record).parent_path();
            require(folder.empty() || fs::is_directory(folder, unknown), "--record '", o.record,
                    "': expected a folder that exists before the prefix");
        });
    flags.add("--slow", "RANK:SECONDS", "let a rank sleep so long before each step, to see what is told of it",
              [&o](Word flag, Word given) {
                  const std::size_t colon = std::min(given.find(':'), given.size() - 1);
                  o.slow_rank = program::parse_count(flag, given.substr(0, colon), 0, o.mesh.world() - 1);
                  o.slow_seconds = program::parse_not_negative(flag, given.substr(colon + 1));
              });
    flags.add("--save", "DIR",
              "save model and optimizer to DIR/step-00000400 after the last step, and, on hosts, when SIGTERM or "
              "SIGINT ends the run after its current step",
              into(o.save, program::parse_file));
    flags.add("--save-every", "N", "with --save: save after every N steps too", into_count(o.save_every, 1));
    flags.add("--keep", "K", "with --save: keep only the newest K steps in DIR; 0 keeps all [0]",
              into_count(o.keep, 0));
    flags.add(
        "--resume", "DIR",
        "continue from the newest whole step in DIR, or from one step's folder; where --save names the same DIR "
        "and it has no step yet, begin a new run",
        into(o.resume, program::parse_file));
    flags.add("--init", "FILE", "take first values from a safetensors file with the names that --names says",
              into(o.init, program::parse_file));
    flags.add("--names", "NAME",
              "shardkit, or gpt2 (GPT2LMHeadModel of transformers): names in the files of --save and --init "
              "[shardkit]",
              into_name(o.names, name_kinds));
    flags.add("--graph", "on|off", "with nccl: all steps but the first are launches of one CUDA graph [off]",
              into_name(o.graph, program::switch_names));
    flags.add("--every", "N", "with nccl: steps between two times that losses are read [20]", into_count(o.every, 1));
}

/// Refuses slices that the ranks or the batch cannot have.
void validate_slices(const Options& o) {
    const std::string given = "--slices " + std::to_string(o.slices), on = " with --mesh " + o.mesh.describe();
    require(std::has_single_bit(o.slices), given, ": expected a power of two");
    require(std::has_single_bit(o.mesh.dp) && o.slices % o.mesh.dp == 0, given, on,
            ": expected data-parallel ranks that are a power of two and divide them");
    require(o.mesh.cp == 1, given, on, ": expected cp = 1, as ranks of cp add parts of one slice");
    require(o.batch % o.slices == 0, "--batch ", o.batch, ": expected a multiple of ", given);
}

/// Refuses to write a result over a file that is read, whatever the paths are called.
void validate_files(const Options& o) {
    for (const auto& [flag, output] : o.outputs()) {
        for (const auto& [other, input] : {std::pair<const char*, const std::string&>{"--text", o.text},
                                           {"--tokens", o.tokens},
                                           {"--encoding", o.encoding},
                                           {"--init", o.init}}) {
            std::error_code unknown;
            require(!fs::equivalent(output, input, unknown), flag, " '", output, "' would be written over ", other,
                    " '", input, "': expected a file of its own");
        }
    }
}

/// Refuses a flag that another one needs.
void require_beside(const program::Flags& flags, const char* flag, const char* needed, bool is_given) {
    require(!flags.is_given(flag) || is_given, flag, " alone: expected ", needed, " as well");
}

/// Refuses what the engine cannot follow.
void validate_engine(const program::Flags& flags, const Options& o) {
    using Names = std::vector<const char*>;
    const bool on_gpus = o.engine == EngineKind::nccl;
    for (const char* const flag : on_gpus ? Names{"--optimizer", "--states", "--master", "--hashes", "--verify-every",
                                                  "--sample", "--deadline", "--record"}
                                          : Names{"--graph", "--every"}) {
        require(!flags.is_given(flag), flag, " with --engine ", program::name_of(engine_names, o.engine),
                ": expected --engine ", on_gpus ? "threads or mpi" : "nccl");
    }
}

/// Checks what was read of all flags, and what follows from it. `processes`: of the job.
void complete(const program::Flags& flags, Options& o, std::size_t processes) {
    validate_engine(flags, o);
    if (o.engine == EngineKind::threads) {
        o.spare_processor = shardkit::host::detail::allowed_cpus() > o.mesh.world();
    }
    o.every = std::min(o.every, o.steps);  // there is memory for the losses of so many
    if (o.slices > 0) {
        require(!flags.is_given("--microbatches"),
                "--microbatches with --slices: expected one of them; a rank's microbatches are its slices");
        validate_slices(o);
        o.microbatches = o.slices / o.mesh.dp;
    }
    require(o.text.empty() || o.tokens.empty(), "--text with --tokens: expected one of them");
    require(o.trace.empty() || o.schedule.kind != ScheduleChoice::Kind::none,
            "--trace with --schedule none: expected prefetch", o.engine == EngineKind::nccl ? "" : " or auto");
    require(o.trace.empty() || !o.graph,
            "--trace with --graph on: expected off, as what a graph launches has no times");
    require_beside(flags, "--top", "--experts", o.model.experts > 0);
    require_beside(flags, "--capacity", "--experts", o.model.experts > 0);
    require_beside(flags, "--save-every", "--save", !o.save.empty());
    require_beside(flags, "--keep", "--save", !o.save.empty());
    require_beside(flags, "--names", "--save or --init", !o.save.empty() || !o.init.empty());
    validate_files(o);
    o.action = flags.is_given("--plan") ? Options::Action::plan : Options::Action::train;
    const bool plans = o.action == Options::Action::plan, of_mpi = o.engine == EngineKind::mpi;
    require(!flags.is_given("--ranks-per-host") || of_mpi || plans, "--ranks-per-host with --engine ",
            program::name_of(engine_names, o.engine),
            ", whose ranks are on one host: expected --engine mpi or --plan");
    require(o.engine == EngineKind::threads || plans || o.mesh.world() == processes, "--mesh ", o.mesh.describe(),
            " has ", o.mesh.world(), " ranks, but this job", of_mpi ? " of --engine mpi has " : " has ", processes,
            " processes: expected ", of_mpi ? "mpirun -n " + std::to_string(o.mesh.world()) + ", or " : std::string(),
            "--mesh ", processes, "x1x1");
    validate(o);
}

/// That tp divides what it splits of the model, and cp, with 2 chunks a rank, every sequence.
void validate_split(const Options& o) {
    const auto by = [&](const char* axis, std::size_t extent) {
        return " of --mesh " + o.mesh.describe() + ": expected a multiple of " + axis + " = " +
               std::to_string(extent);
    };
    require(o.model.heads % o.mesh.tp == 0, "--heads ", o.model.heads, by("tp", o.mesh.tp), ", which splits them");
    require(o.model.rows_of_vocabulary() % o.mesh.tp == 0, "--mesh ", o.mesh.describe(),
            ": expected a tp that divides the vocabulary of ", o.model.rows_of_vocabulary());
    const Split split = o.split();
    require(o.model.sequence % split.token_unit() == 0, "--sequence ", o.model.sequence, " with --mesh ",
            o.mesh.describe(), ": expected a multiple of ", split.token_unit(), ", of ",
            split.splits_tokens() ? "2 * cp and, with --sequence-parallel on, of cp * tp" : "2 * cp");
}

/// What a layer of experts needs of the rest.
void validate_experts(const Options& o) {
    const std::string experts = "--experts " + std::to_string(o.model.experts);
    const std::string ep = "--ep " + std::to_string(o.ep);
    if (o.model.experts == 0) { return require(o.ep == 1, ep, ": expected --experts, whose ranks it counts"); }
    const std::string mesh = " with --mesh " + o.mesh.describe();
    require(o.model.top <= o.model.experts, "--top ", o.model.top, " of ", experts, ": expected at most as many");
    require(o.model.experts % o.ep == 0, experts, ": expected a multiple of ", ep);
    require(o.mesh.dp * o.mesh.cp % o.ep == 0 && (o.ep % o.mesh.cp == 0 || o.mesh.cp % o.ep == 0), ep, mesh,
            ": expected a divisor of dp x cp that is a factor or a multiple of cp");
    require(!program::has_groups(o.policy.kind) || o.policy.group * o.mesh.cp % o.ep == 0, ep, mesh,
            " with --policy ", o.policy.text(), ": expected a divisor of a group's ", o.policy.group * o.mesh.cp,
            " data ranks");
    require(o.slices == 0 || o.ep == 1 || o.dtype != Dtype::bf16, "--slices ", o.slices, " with ", ep,
            " and --dtype bf16, whose gradients would be rounded once for several ranks: expected fp32 or fp64");
    require(!o.split().splits_tokens(), experts, mesh,
            " and --sequence-parallel on: expected off, as each rank of tp ",
            "sends all of its tokens to its part of the experts");
    require(!o.graph || o.model.capacity > 0, experts, " and --graph on with --capacity 0: expected a capacity, as ",
            "without one the host reads in each pass how many rows each expert gets");
    require(o.names == NameKind::shardkit, experts, ": expected --names shardkit");
}

}  // namespace

void validate(const Options& o) {
    const std::string mesh = o.mesh.describe();
    validate_experts(o);
    require(
        o.states == shardkit::StateFormat::full || (o.dtype != Dtype::fp64 && o.optimizer == OptimizerKind::adamw),
        "--states ", program::name_of(state_names, o.states),
        ": expected --optimizer adamw, and --dtype fp32 or bf16");
    require(o.master == shardkit::MasterWeights::kept || o.dtype == Dtype::bf16, "--master ",
            program::name_of(master_names, o.master), ": expected --dtype bf16, which has masters");
    require(o.engine != EngineKind::threads || o.action == Options::Action::plan || o.mesh.world() <= 1024, "--mesh ",
            mesh, ": expected at most 1024 ranks as threads of one process; --plan takes any");
    o.policy.require_fits("--policy", o.mesh.dp, " of --mesh " + mesh);
    require(o.mesh.dp <= 0xffff'ffffU && o.mesh.tp <= 0xffffU && o.mesh.cp <= 0xffffU, "--mesh '", mesh,
            "': expected at most 4294967295x65535x65535 ranks");
    const std::string batch = "--batch " + std::to_string(o.batch);
    require(o.batch % o.mesh.dp == 0, batch, ": expected a multiple of the ", o.mesh.dp,
            " data-parallel ranks of --mesh ", mesh);
    require(o.batch % o.microbatches == 0, batch, ": expected a multiple of --microbatches ", o.microbatches);
    require(o.sequences_per_rank() >= o.microbatches, batch, ": expected at least ", o.mesh.dp, " x ", o.microbatches,
            ", a sequence for each data-parallel rank and microbatch");
    if (o.release == sk::GradientRelease::at_update) {
        const auto only = [](bool holds, const std::string& given, const char* expected) {
            require(holds, "--release on with ", given, ": expected ", expected);
        };
        only(o.clip == 0, "--clip", "--clip 0, as a norm needs the gradients of all groups at once");
        only(o.microbatches == 1, "--microbatches " + std::to_string(o.microbatches),
             "1, as gradients stay in memory until the last one");
        only(o.schedule.kind == ScheduleChoice::Kind::none, "--schedule " + o.schedule.text(),
             "none, as a schedule has its updates at the end");
        only(o.schedule_out.empty(), "--schedule-out", "a step with its updates at the end");
    }
    validate_split(o);
    require(o.sample == 0 || !o.encoding.empty() || (o.model.vocabulary <= bytes_vocabulary && o.tokens.empty()),
            "--sample with ",
            o.tokens.empty() ? "--vocabulary " + std::to_string(o.model.vocabulary) : std::string("--tokens"),
            ": expected --encoding, or a text and at most its 256 bytes, which can be printed");
    try {
        validate(o.model, o.pass_shape().batch);
        checked_product(o.batch, o.model.sequence, "--batch x --sequence");
    } catch (const std::invalid_argument& error) { throw InputError(error.what()); }
    require(o.engine != EngineKind::nccl || o.dtype != Dtype::fp64, "--dtype 'fp64': expected fp32 or bf16");
}

std::optional<Options> parse_command_line(int count, const char* const* arguments, std::string& help,
                                          std::size_t processes, std::size_t ranks_per_host, bool spare_processor) {
    program::Flags flags("Trains a GPT with sharded parameters, gradients and optimizer states.", "train_gpt");
    Options o;
    o.schedule = {ScheduleChoice::Kind::automatic, 0};
    flags.add("--engine", "NAME",
              "threads (ranks in this process), mpi (processes of mpirun) or nccl (one GPU, or a process for each, "
              "started as torchrun does) [threads]",
              [&](Word flag, Word given) {
                  into_name(o.engine, engine_names)(flag, given);
                  if (o.engine == EngineKind::threads) { return; }
                  if (o.engine == EngineKind::nccl) { o.schedule = {}; }
                  o.every = o.engine == EngineKind::nccl ? 20 : 1;
                  o.mesh = {processes, 1, 1};
                  o.ranks_per_host = ranks_per_host;
                  o.spare_processor = spare_processor;
              });
    add_flags(flags, o);
    if (!flags.parse(count, arguments, help)) { return std::nullopt; }
    complete(flags, o, processes);
    return o;
}

}  // namespace train_gpt
