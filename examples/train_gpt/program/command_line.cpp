// SPDX-License-Identifier: Apache-2.0
#include "command_line.hpp"

#include <string>

#include "../../common/flags.hpp"
#include "../../common/parse.hpp"

namespace train_gpt {

namespace {

void add_flags(program::Flags& flags) {
    flags.add_switch("--plan", "print memory and traffic per rank for --mesh, of any size, and stop");
    flags.add("--mesh", "DPxTPxCP",
              "data x tensor x context parallel ranks [2x1x1; 1x1x1 with --engine self; with mpi all processes]");
    flags.add("--policy", "NAME",
              "no_shard, shard_optimizer, shard_grad_op, full_shard or hybrid_shard:N [full_shard]");
    flags.add("--engine", "NAME",
              "self (one rank), threads (ranks in this process) or mpi (processes of mpirun) [threads]");
    flags.add("--steps", "N", "training steps [400]");
    flags.add("--batch", "N", "sequences per step over all ranks and microbatches [16]");
    flags.add("--microbatches", "N", "parts in which a rank works through its sequences [1]");
    flags.add("--sequence", "N", "tokens of a sequence [64]");
    flags.add("--layers", "N", "transformer blocks [4]");
    flags.add("--width", "N", "width of the residual stream [128]");
    flags.add("--heads", "N", "attention heads [4]");
    flags.add("--head", "NAME", "tied (logits from the token embedding) or untied [tied]");
    flags.add("--sequence-parallel", "on|off", "with tp: norms and residuals hold a part of the tokens [off]");
    flags.add("--context", "ring|gather", "with cp: how keys and values get to the queries [ring]");
    flags.add("--dtype", "NAME", "fp64, fp32 or bf16: type of parameters and gradients [fp32]");
    flags.add("--optimizer", "NAME", "adamw or sgd (momentum 0.9) [adamw]");
    flags.add("--lr", "X", "learning rate [1e-3; 0.1 with sgd]");
    flags.add("--weight-decay", "X", "weight decay of the matrices [0.01]");
    flags.add("--clip", "X", "largest global gradient norm; 0 for no clipping [1]");
    flags.add("--seed", "N", "decides first values, data order and samples [1]");
    flags.add("--text", "FILE", "what to train on [this repository's headers and documentation]");
    flags.add("--json", "FILE", "write the results as one JSON object");
    flags.add("--plot", "FILE", "draw the loss curve, .png or .svg");
    flags.add("--sample", "N", "generate N bytes after training [0]");
}

}  // namespace

std::optional<Options> parse_command_line(int count, const char* const* arguments, std::string& help,
                                          std::size_t processes) {
    program::Flags flags("Trains a byte-level GPT with sharded parameters, gradients and optimizer states.",
                         "train_gpt");
    add_flags(flags);
    flags.parse(count, arguments);
    if (!flags.help().empty()) {
        help = flags.help();
        return std::nullopt;
    }

    Options o;
    const auto count_into = [&](const std::string& name, std::size_t& target, std::uint64_t least) {
        flags.use(name,
                  [&](const auto& flag, const auto& given) { target = program::parse_count(flag, given, least); });
    };
    const auto number_into = [&](const std::string& name, double& target) {
        flags.use(name,
                  [&](const auto& flag, const auto& given) { target = program::parse_not_negative(flag, given); });
    };
    const auto text_into = [&](const std::string& name, std::string& target) {
        flags.use(name, [&](const auto& flag, const auto& given) { target = program::parse_file(flag, given); });
    };
    const auto name_into = [&]<class Enum>(const std::string& name, Enum& target, const auto& names) {
        flags.use(name, [&](const auto& flag, const auto& given) {
            target = static_cast<Enum>(program::parse_name(flag, given, names));
        });
    };

    name_into("--engine", o.engine, engine_names);
    if (o.engine == EngineKind::self) { o.mesh = {1, 1, 1}; }
    if (o.engine == EngineKind::mpi) { o.mesh = {processes, 1, 1}; }
    flags.use("--mesh", [&](const auto& flag, const auto& given) { o.mesh = program::parse_mesh(flag, given); });
    flags.use("--policy",
              [&](const auto& flag, const auto& given) { o.policy = program::parse_policy(flag, given); });
    count_into("--steps", o.steps, 1);
    count_into("--batch", o.batch, 1);
    count_into("--microbatches", o.microbatches, 1);
    count_into("--sequence", o.model.sequence, 1);
    count_into("--layers", o.model.layers, 1);
    count_into("--width", o.model.width, 1);
    count_into("--heads", o.model.heads, 1);
    name_into("--head", o.model.head, head_names);
    name_into("--sequence-parallel", o.sequence_parallel, program::switch_names);
    name_into("--context", o.context, exchange_names);
    name_into("--dtype", o.dtype, dtype_names);
    name_into("--optimizer", o.optimizer, optimizer_names);
    if (o.optimizer == OptimizerKind::sgd) { o.learning_rate = 0.1; }
    number_into("--lr", o.learning_rate);
    number_into("--weight-decay", o.weight_decay);
    number_into("--clip", o.clip);
    count_into("--seed", o.seed, 0);
    text_into("--text", o.text);
    text_into("--json", o.json);
    text_into("--plot", o.plot);
    count_into("--sample", o.sample, 0);
    o.action = flags.is_given("--plan") ? Options::Action::plan : Options::Action::train;
    if (o.engine == EngineKind::mpi && o.action == Options::Action::train && o.mesh.world() != processes) {
        throw program::InputError("--mesh " + o.mesh.describe() + " has " + std::to_string(o.mesh.world()) +
                                  " ranks, but this job of --engine mpi has " + std::to_string(processes) +
                                  " processes: expected mpirun -n " + std::to_string(o.mesh.world()) +
                                  ", or --mesh " + std::to_string(processes) + "x1x1");
    }
    validate(o);
    return o;
}

namespace {

/// That tp divides what it splits of the model, and cp, with 2 chunks a rank, every sequence.
void validate_split(const Options& o) {
    const auto by = [&](const char* axis, std::size_t extent) {
        return " of --mesh " + o.mesh.describe() + ": expected a multiple of " + axis + " = " +
               std::to_string(extent);
    };
    if (o.model.heads % o.mesh.tp != 0) {
        throw program::InputError("--heads " + std::to_string(o.model.heads) + by("tp", o.mesh.tp) +
                                  ", which splits them");
    }
    if (vocabulary % o.mesh.tp != 0) {
        throw program::InputError("--mesh " + o.mesh.describe() + ": expected a tp that divides the vocabulary of " +
                                  std::to_string(vocabulary));
    }
    const Split split = o.split();
    if (o.model.sequence % split.token_unit() != 0) {
        const std::string tokens =
            split.splits_tokens() ? "2 * cp and, with --sequence-parallel on, of cp * tp" : "2 * cp";
        throw program::InputError("--sequence " + std::to_string(o.model.sequence) + " with --mesh " +
                                  o.mesh.describe() + ": expected a multiple of " +
                                  std::to_string(split.token_unit()) + ", of " + tokens);
    }
}

}  // namespace

void validate(const Options& o) {
    const std::string mesh = o.mesh.describe();
    if (o.engine == EngineKind::self && o.action == Options::Action::train && o.mesh.world() != 1) {
        throw program::InputError(
            "--mesh " + mesh + " has " + std::to_string(o.mesh.world()) +
            " ranks, but the world of --engine self has 1: expected 1x1x1, or --engine threads");
    }
    if (o.engine == EngineKind::threads && o.action == Options::Action::train && o.mesh.world() > 1024) {
        throw program::InputError("--mesh " + mesh +
                                  ": expected at most 1024 ranks as threads of one process; --plan takes any");
    }
    o.policy.require_fits("--policy", o.mesh.dp, mesh);
    if (o.mesh.dp > 0xffff'ffffU || o.mesh.tp > 0xffffU || o.mesh.cp > 0xffffU) {
        throw program::bad_flag("--mesh", mesh, "at most 4294967295x65535x65535 ranks");
    }
    const std::string batch = "--batch " + std::to_string(o.batch);
    if (o.batch % o.mesh.dp != 0) {
        throw program::InputError(batch + ": expected a multiple of the " + std::to_string(o.mesh.dp) +
                                  " data-parallel ranks of --mesh " + mesh);
    }
    if (o.batch % o.microbatches != 0) {
        throw program::InputError(batch + ": expected a multiple of --microbatches " +
                                  std::to_string(o.microbatches));
    }
    if (o.sequences_per_rank() < o.microbatches) {
        throw program::InputError(batch + ": expected at least " + std::to_string(o.mesh.dp) + " x " +
                                  std::to_string(o.microbatches) +
                                  ", a sequence for each data-parallel rank and microbatch");
    }
    validate_split(o);
    constexpr std::size_t many = 1'000'000'000;
    if (o.steps > many) { throw program::bad_flag("--steps", std::to_string(o.steps), "at most 1000000000"); }
    if (o.sample > many) { throw program::bad_flag("--sample", std::to_string(o.sample), "at most 1000000000"); }
    try {
        validate(o.model, o.pass_shape().batch);
        checked_product(o.batch, o.model.sequence, "--batch x --sequence");
    } catch (const std::invalid_argument& error) { throw program::InputError(error.what()); }
    if (!o.plot.empty() && !o.plot.ends_with(".png") && !o.plot.ends_with(".svg")) {
        throw program::bad_flag("--plot", o.plot, "a name that ends in .png or .svg");
    }
    if (!o.plot.empty() && o.plot == o.json) {
        throw program::bad_flag("--plot", o.plot, "another file than that of --json");
    }
}

}  // namespace train_gpt
