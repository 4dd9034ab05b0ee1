// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <shardkit/comm/all_reduce.hpp>
#include <shardkit/optim/clip.hpp>
#include <shardkit/optim/norm.hpp>
#include <shardkit/step/accumulation.hpp>
#include <shardkit/step/reduce.hpp>

#include "../../common/text_format.hpp"
#include "../allocation_counter.hpp"
#include "../model/initialise.hpp"
#include "data_order.hpp"
#include "engine_links.hpp"
#include "forward_backward.hpp"
#include "job.hpp"
#include "optimizer.hpp"
#include "sample.hpp"
#include "workspace.hpp"

namespace train_gpt {

/// One rank's training run. The source is the same for every engine and element type, the program for every policy.
template <class Engine, class T>
class Trainer {
  public:
    /// Takes all memory of the run. Collective over the mesh.
    Trainer(sk::Context<Engine>& context, const Job& job)
        : context_(context),
          options_(job.options),
          split_(options_.split(context.grid().coordinate(sk::Tp::name, context.rank()),
                                context.grid().coordinate(sk::Cp::name, context.rank()))),
          part_(split_.chunks(options_.model.sequence)),
          data_ranks_(context.template sub_mesh<sk::Axes<sk::Dp, sk::Cp>>()),
          data_(job.text, options_.model.sequence, options_.seed),
          model_(context, options_.model, options_.policy.policy()),
          optimizer_(model_.groups(), options_),
          links_(context, split_, options_.context,
                 attention_shape(options_.model, split_, split_.local(options_.pass_shape())).keys_values()),
          work_(options_.model, split_, split_.local(options_.pass_shape()), links_) {
        const Initialiser first_values(options_.seed, options_.model.layers);
        model_.groups().for_each([&](auto& layer) { layer.initialize(first_values); });
    }

    struct Step {
        double loss;  // mean over the global batch
        double grad_norm;
    };

    Step step(std::size_t number) {
        const std::size_t first =
            context_.grid().coordinate(sk::Dp::name, context_.rank()) * options_.sequences_per_rank();
        sk::Accumulation accumulation{model_.groups()};
        SummedLoss loss;
        for (std::size_t m = 0; m < options_.microbatches; ++m) {
            const BatchShape batch{options_.microbatch_sequences(m), part_.tokens()};
            data_.fill(number, first + options_.microbatch_begin(m), batch.batch, part_, work_.tokens(),
                       work_.targets());
            const bool last = m + 1 == options_.microbatches;
            loss += forward_backward(model_, accumulation, work_.pass(), batch, work_.tokens(), work_.targets(),
                                     last ? sk::Microbatch::last : sk::Microbatch::more);
        }
        const auto all_tokens = static_cast<double>(options_.tokens_per_step());
        auto reduced = sk::reduce(std::move(accumulation), sk::divide_by(all_tokens));
        const auto norm = sk::global_norm(reduced);
        const double max_norm = options_.clip;
        optimizer_.step(std::move(reduced), max_norm > 0 ? sk::clip(norm, max_norm) : sk::no_clip(norm));
        sk::all_reduce_in_place(data_ranks_, sk::ReduceOp::sum, std::span<double>(&loss.sum, 1),
                                context_.compute_stream());
        return {loss.sum / all_tokens, norm.value()};
    }

    std::string sample(std::size_t count) {
        return train_gpt::sample(context_, model_, work_.pass(), options_.model, split_, count, options_.seed);
    }

    /// Every parameter in full, as double; on rank 0 only, though every rank takes part.
    std::vector<FinalParameter> parameters() {
        std::vector<FinalParameter> all;
        model_.groups().for_each([&](auto& layer) {
            using Group = typename std::remove_cvref_t<decltype(layer)>::Group;
            [&]<std::size_t... I>(std::index_sequence<I...>) {
                (read(layer, typename Group::template At<I>{}, all), ...);
            }
            (std::make_index_sequence<Group::count>{});
        });
        return all;
    }

  private:
    template <class Layer, class P>
    void read(Layer& layer, P parameter, std::vector<FinalParameter>& all) {
        std::vector<double> values;
        if (context_.rank() == 0) {
            values.resize(layer.parameters()[Layer::Group::template index<P>].shape.numel());
        }
        layer.read_full_on(0, parameter, std::span<double>(values));
        if (context_.rank() == 0) { all.push_back({layer.path(), std::string(P::name), std::move(values)}); }
    }

    using Model = ShardedModel<Engine, T>;
    template <class Groups>
    struct OptimizerOf;
    template <class... Parts>
    struct OptimizerOf<sk::Groups<Parts...>> {
        using type = ChosenOptimizer<Parts...>;
    };

    sk::Context<Engine>& context_;
    const Options& options_;
    Split split_;
    sk::cp::CausalChunks part_;
    typename Engine::Communicator data_ranks_;
    DataOrder data_;
    Model model_;
    typename OptimizerOf<decltype(std::declval<Model&>().groups())>::type optimizer_;
    EngineLinks<Engine, Arithmetic<T>> links_;
    Workspace<T> work_;
};

/// What a rank communicated since the log was cleared, as the mean over the ranks: the sum of a few numbers has no
/// part for every rank, so that one of them moves more bytes than the others. Collective over the world.
template <class Engine>
std::vector<CollectiveCount> mean_collectives(sk::Context<Engine>& context) {
    constexpr std::size_t fields = 3;
    const auto rows = context.traffic().rows();
    std::vector<std::uint64_t> means;
    for (const auto& row : rows) { means.insert(means.end(), {row.calls, row.moved.value, row.payload.value}); }
    sk::all_reduce_in_place(context.world(), sk::ReduceOp::sum, std::span<std::uint64_t>(means),
                            context.compute_stream());
    const std::size_t world = context.world_size();
    for (std::uint64_t& mean : means) { mean = (2 * mean + world) / (2 * world); }
    std::vector<CollectiveCount> list;
    for (std::size_t r = 0; r < rows.size(); ++r) {
        const std::uint64_t* const row = means.data() + fields * r;
        if (row[0] > 0) { list.push_back({std::string(name(rows[r].verb)), rows[r].axes, row[0], row[1], row[2]}); }
    }
    std::sort(list.begin(), list.end());
    return list;
}

/// Refuses to train on with numbers that mean nothing any more; the same on every rank.
inline void require_finite(std::size_t step, double loss, double grad_norm, const Options& options) {
    if (std::isfinite(loss) && std::isfinite(grad_norm)) { return; }
    const auto text = [](double value) {
        return std::isnan(value) ? std::string("nan") : program::formatted("%.4g", value);
    };
    throw std::runtime_error(
        "step " + std::to_string(step + 1) + ": the loss is " + text(loss) + ", the gradient norm " +
        text(grad_norm) + ", expected finite numbers: training diverged, with --lr " + text(options.learning_rate));
}

/// The multiply-adds of a rank, as Work says. Collective over the world.
template <class Engine>
Work work_of_ranks(sk::Context<Engine>& context, const MultiplyAdds& before) {
    const std::uint64_t attention = multiply_adds().attention - before.attention;
    Work work{multiply_adds().all - before.all - attention, attention, attention};
    const auto agree = [&](sk::ReduceOp op, std::uint64_t& value) {
        sk::all_reduce_in_place(context.world(), op, std::span<std::uint64_t>(&value, 1), context.compute_stream());
    };
    agree(sk::ReduceOp::min, work.attention_least);
    agree(sk::ReduceOp::max, work.attention_most);
    return work;
}

/// Trains on one rank; rank 0 writes `results`, whose vectors have their sizes already.
template <class T, class Engine>
void train_on_rank(sk::Context<Engine>& context, const Job& job, Results& results) {
    using Clock = std::chrono::steady_clock;
    const CountedAllocations counted;
    const bool reports = context.rank() == 0;
    const std::size_t steps = job.options.steps;
    // The first steps may still take memory (communicators' and libraries' lazy buffers).
    const std::size_t warm_up = std::min<std::size_t>(2, steps - 1);

    Trainer<Engine, T> trainer(context, job);
    std::uint64_t allocations = 0;
    MultiplyAdds multiply_adds_before;
    auto start = Clock::now();
    // Of a run of several steps the first is not timed: it takes memory.
    const auto tokens_per_second = [&](std::size_t step) {
        const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
        return static_cast<double>(std::max<std::size_t>(step, 1) * job.options.tokens_per_step()) / seconds;
    };
    for (std::size_t s = 0; s < steps; ++s) {
        if (s + 1 == steps) {
            context.traffic().clear();
            multiply_adds_before = multiply_adds();
        }
        const std::uint64_t before = counted.allocations();
        const auto [loss, grad_norm] = trainer.step(s);
        require_finite(s, loss, grad_norm, job.options);
        if (s >= warm_up) { allocations += counted.allocations() - before; }
        if (reports) {
            results.losses[s] = loss;
            results.grad_norms[s] = grad_norm;
            results.tokens_per_second = tokens_per_second(s);
            if (job.after_step) { job.after_step({s, loss, grad_norm, results.tokens_per_second}); }
            if (s == 0) { start = Clock::now(); }
        }
    }
    std::uint64_t peak = counted.peak_bytes();
    auto collectives = mean_collectives(context);
    const Work work = work_of_ranks(context, multiply_adds_before);
    sk::all_reduce_in_place(context.world(), sk::ReduceOp::max, std::span<std::uint64_t>(&peak, 1),
                            context.compute_stream());
    if (reports) {
        results.peak_bytes_per_rank = peak;
        results.allocations_per_steady_step = (allocations + steps - warm_up - 1) / (steps - warm_up);
        results.work = work;
        results.collectives = std::move(collectives);
    }
    if (job.options.sample > 0) {
        std::string text = trainer.sample(job.options.sample);
        if (reports) { results.sample = std::move(text); }
    }
    if (job.keep_parameters == KeepParameters::yes) {
        auto parameters = trainer.parameters();
        if (reports) { results.parameters = std::move(parameters); }
    }
}

}  // namespace train_gpt
