// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <shardkit/comm/all_gather.hpp>
#include <shardkit/follow/follow.hpp>
#include <shardkit/follow/measured_step.hpp>
#include <shardkit/follow/trace.hpp>
#include <shardkit/optim/clip.hpp>
#include <shardkit/optim/norm.hpp>
#include <shardkit/optim/optimizer.hpp>
#include <shardkit/rank/all_reduce_value.hpp>
#include <shardkit/step/accumulation.hpp>
#include <shardkit/step/divisor.hpp>
#include <shardkit/step/model.hpp>
#include <shardkit/step/slices.hpp>
#include <shardkit/verify/hash_values.hpp>
#include <shardkit/verify/verify_replicas.hpp>

#include "../model/initialise.hpp"
#include "call_times.hpp"
#include "data_order.hpp"
#include "engine_links.hpp"
#include "forward_backward.hpp"
#include "job.hpp"
#include "optimizer.hpp"
#include "sample.hpp"
#include "saved_run.hpp"
#include "sharded_model.hpp"
#include "slice_hashes.hpp"
#include "workspace.hpp"

namespace train_gpt {

/// One rank's training run. The source is the same for every engine and element type, the program for every policy.
/// `Gather`: what gathers of the blocks carry.
template <class Engine, class T, class Gather = T>
class Trainer {
    using Model = ShardedModel<Engine, T, Gather>;

  public:
    /// Takes all memory of the run, and reads what the run begins with. Collective over the mesh.
    /// @throws FileError or std::invalid_argument, on every rank, when that cannot be read
    Trainer(sk::Context<Engine>& context, const Job& job)
        : context_(context),
          job_(job),
          options_(job.options),
          split_(options_.split(context.grid().coordinate(sk::Tp::name, context.rank()),
                                context.grid().coordinate(sk::Cp::name, context.rank()))),
          part_(split_.chunks(options_.model.sequence)),
          data_ranks_(context.template sub_mesh<sk::Axes<sk::Dp, sk::Cp>>()),
          data_(job.text, options_.model.sequence, options_.seed),
          model_(context, options_.model, split_, split_.local(options_.pass_shape()).tokens(),
                 options_.chosen_policy(), options_.master, options_.release),
          groups_(model_.groups()),
          following_(begin(job)),
          optimizer_(optimizer()),
          links_(context, split_, options_.context,
                 attention_shape(options_.model, split_, split_.local(options_.pass_shape())).keys_values()),
          work_(context, options_.model, split_, split_.local(options_.pass_shape()), links_) {
        losses_.reserve(options_.microbatches);
        if (options_.slices > 0 && (options_.replay || !options_.hashes.empty())) {
            std::vector<std::string> paths;
            groups_.for_each([&](const auto& group) { paths.push_back(group.path()); });
            slice_hashes_.emplace(std::move(paths));
        }
        resume_run(context, job, groups_, *optimizer_);
    }

    struct Step {
        double loss;  // mean over the global batch
        std::optional<double> grad_norm;
    };

    Step step(std::size_t number) {
        const std::size_t first =
            context_.grid().coordinate(sk::Dp::name, context_.rank()) * options_.sequences_per_rank();
        std::optional<CallTimes::Scope> timed;
        if (times_calls_ && context_.world_size() > 1) { timed.emplace(context_.world().label().journal, calls_); }
        unled_.began = std::chrono::steady_clock::now();
        sk::Accumulation accumulation{groups_, options_.microbatches};
        const auto all_tokens = static_cast<double>(options_.tokens_per_step());
        const bool releases = options_.release == sk::GradientRelease::at_update;
        if (releases) { optimizer_->step_in_backward(accumulation, {.divisor = divisor()}); }
        model_.auxiliary = auxiliary_coefficient * divisor().factor();
        losses_.clear();
        if (slice_hashes_) { slice_hashes_->begin_step(); }
        for (std::size_t m = 0; m < options_.microbatches; ++m) {
            losses_.push_back(options_.slices > 0
                                  ? slice(accumulation, number, sk::slice_of(groups_, m))
                                  : pass(accumulation, number, first + options_.microbatch_begin(m), m));
        }
        const sk::StepOptions<Engine> how{.divisor = divisor(),
                                          .max_norm = options_.clip > 0 ? options_.clip : sk::unlimited};
        const auto norm = options_.hashes.empty() || releases ? optimizer_->step(std::move(accumulation), how)
                                                              : hashed_step(std::move(accumulation), how);
        unled_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - unled_.began).count();
        unled_.communication = calls_.seconds();
        unled_.compute = unled_.seconds - unled_.communication;
        const double mean = summed_loss() / all_tokens;
        if (releases) { return {mean, std::nullopt}; }
        return {mean, norm.value()};
    }

    /// The last step's, of a run with --hashes; none with --release on, where they are never all in memory.
    const std::vector<sk::ValuesHash>& gradient_hashes() const noexcept { return gradient_hashes_; }
    /// Those of the last step's slices, before they are added: see SliceHashes::gather. Collective over the world.
    std::vector<std::vector<sk::ValuesHash>> slice_hashes() const {
        return slice_hashes_ ? slice_hashes_->gather(context_) : std::vector<std::vector<sk::ValuesHash>>{};
    }
    /// Computes one slice of step `number` alone, and drops its gradients, of which slice_hashes are left.
    /// @returns its loss, the mean over its tokens
    double replay(std::size_t number, std::size_t slice_number) {
        sk::Accumulation accumulation{groups_, options_.microbatches};
        slice_hashes_->begin_step();
        return slice(accumulation, number, slice_number) * static_cast<double>(options_.slices) /
               static_cast<double>(options_.tokens_per_step());
    }
    /// Those of now. Collective over the world.
    std::vector<sk::ValuesHash> state_hashes() { return sk::hash_values(*optimizer_); }
    std::vector<sk::ValuesHash> parameter_hashes() { return sk::hash_values(groups_); }
    /// Compares what several ranks hold. Collective over the world. @throws sk::ReplicaError, on every rank
    void verify() { sk::verify_replicas(groups_, *optimizer_); }

    /// Times the steps to come. Where they follow no schedule each call is made when it is needed, and the rank waits
    /// for all of it.
    void measure() {
        if (following_) {
            following_->measure();
        } else {
            times_calls_ = true;
        }
    }
    /// The last step's times, behind measure(); without a schedule they have no spans.
    sk::schedule::MeasuredStep measured() const { return following_ ? following_->measured() : unled_; }

    /// That step's timeline on every rank, on rank 0; `start`: a moment that is the same on all ranks. Collective
    /// over the world.
    std::string trace(const sk::Schedule& schedule, std::chrono::steady_clock::time_point start) {
        const std::size_t world = context_.world_size();
        const sk::schedule::MeasuredStep mine = following_->measured();
        constexpr std::size_t fields = 4;
        const std::size_t size = 2 + fields * (1 + 4 * schedule.size());  // of a rank
        std::vector<double> sent{std::chrono::duration<double>(mine.began - start).count(),
                                 static_cast<double>(mine.spans.size())};
        for (const sk::schedule::StepSpan& span : mine.spans) {
            sent.insert(sent.end(), {static_cast<double>(span.kind), static_cast<double>(span.op), span.time.begin,
                                     span.time.end});
        }
        sent.resize(size);
        std::vector<double> all(size * world);
        sk::all_gather(context_.world(), sent, all, context_.compute_stream());
        if (context_.rank() != 0) { return {}; }
        std::vector<sk::schedule::MeasuredStep> ranks(world);
        for (std::size_t rank = 0; rank < world; ++rank) {
            const double* at = all.data() + rank * size;
            using Clock = std::chrono::steady_clock;
            ranks[rank].began =
                start + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(at[0]));
            const auto spans = static_cast<std::size_t>(at[1]);
            at += 2;
            for (std::size_t s = 0; s < spans; ++s, at += fields) {
                ranks[rank].spans.push_back({static_cast<sk::schedule::SpanKind>(static_cast<std::uint8_t>(at[0])),
                                             static_cast<std::size_t>(at[1]),
                                             {at[2], at[3]}});
            }
        }
        return sk::schedule::trace(schedule, sk::describe_groups(groups_), ranks);
    }

    /// As save_run.
    std::string save(std::size_t steps) { return save_run(context_, job_, steps, groups_, *optimizer_); }

    std::string sample(std::size_t count) {
        const Token begin = job_.encoding.of_byte('\n');
        return job_.encoding.decode(
            train_gpt::sample(context_, model_, work_.pass(), options_.model, split_, begin, count, options_.seed));
    }

    /// Every parameter in full, as double; on rank 0 only, though every rank takes part.
    std::vector<FinalParameter> parameters() {
        std::vector<FinalParameter> all;
        model_.for_each_layer([&](auto& layer) {
            using Group = typename std::remove_cvref_t<decltype(layer)>::Group;
            [&]<std::size_t... I>(std::index_sequence<I...>) {
                (read(layer, typename Group::template At<I>{}, all), ...);
            }
            (std::make_index_sequence<Group::count>{});
        });
        return all;
    }

    /// One number of all parameters and masters, the same on every rank and for any number of ranks. Collective over
    /// the mesh.
    std::uint64_t hash() {
        std::uint64_t all = 0;
        for (const sk::ValuesHash& one : parameter_hashes()) { all = mix(all ^ one.hash); }
        return all;
    }

  private:
    /// Losses of tokens are divided by their number, and a router's by that of the passes that have one.
    sk::Divisor divisor() const {
        const sk::Divisor tokens = sk::divide_by(static_cast<double>(options_.tokens_per_step()));
        const std::size_t passes = options_.mesh.dp * options_.mesh.cp * options_.microbatches;
        return options_.model.experts > 0 ? tokens.beside(static_cast<double>(passes)) : tokens;
    }
    /// One microbatch's sequences, from number `begin` of the global batch on. @returns the sum of its tokens' losses
    double pass(sk::Accumulation<Engine>& accumulation, std::size_t number, std::size_t begin, std::size_t m) {
        const BatchShape batch{options_.microbatch_sequences(m), part_.tokens()};
        data_.fill(number, begin, batch.batch, part_, work_.tokens(), work_.targets());
        double loss = 0;
        forward_backward(model_, accumulation, work_.pass(), batch, work_.tokens(), work_.targets(), &loss,
                         [this](const auto& layer, const auto& gradients) {
                             if (slice_hashes_) { slice_hashes_->add(layer, gradients); }
                         });
        return loss;
    }
    double slice(sk::Accumulation<Engine>& accumulation, std::size_t number, std::size_t slice_number) {
        if (slice_hashes_) { slice_hashes_->begin_slice(slice_number); }
        return pass(accumulation, number, slice_number * options_.microbatch_sequences(0), 0);
    }
    /// What the optimizer's step does, and the hashes of the gradients that it takes, which no traffic is counted
    /// for.
    sk::GlobalNorm<Engine> hashed_step(sk::Accumulation<Engine>&& accumulation, const sk::StepOptions<Engine>& how) {
        sk::Reduced<Engine> reduced = sk::reduce(std::move(accumulation), how.divisor);
        const sk::TrafficLog before = context_.traffic();
        gradient_hashes_ = sk::hash_values(reduced);
        context_.traffic() = before;
        const sk::GlobalNorm<Engine> norm = sk::global_norm(reduced);
        optimizer_->step(std::move(reduced), sk::clip(norm, how.max_norm));
        return norm;
    }
    /// The sum of the losses of all microbatches on all ranks; with --slices the same for any number of ranks.
    /// Collective over the data ranks.
    double summed_loss() {
        if (options_.slices > 0) { return sk::exact_sum(context_, data_ranks_, std::span<const double>(losses_)); }
        double sum = 0;
        for (const double loss : losses_) { sum += loss; }
        add_losses(data_ranks_, std::span<double>(&sum, 1), context_.compute_stream());
        return sum;
    }
    /// Gives the model its first values, and lets its steps follow their schedule: before the optimizer takes memory,
    /// because the buffers that windows share without a schedule are given back for it.
    std::optional<sk::schedule::Following<Engine>> begin(const Job& job) {
        give_first_values(context_, job, groups_);
        if (!job.chosen.schedule) { return std::nullopt; }
        return sk::schedule::follow(groups_, *job.chosen.schedule);
    }
    /// Of codes there is AdamW alone, which keeps this program quick to compile.
    std::unique_ptr<sk::Optimizer<Engine>> optimizer() const {
        if constexpr (Model::decodes) {
            return make_adamw<sk::StateFormat::full>(groups_, options_);
        } else {
            return make_optimizer(groups_, options_);
        }
    }
    template <class Layer, class P>
    void read(Layer& layer, P parameter, std::vector<FinalParameter>& all) {
        std::vector<double> values;
        if (context_.rank() == 0) {
            values.resize(layer.parameters()[Layer::Group::template index<P>].shape.numel());
        }
        layer.read_full_on(0, parameter, std::span<double>(values));
        if (context_.rank() == 0) { all.push_back({layer.path(), std::string(P::name), std::move(values)}); }
    }

    sk::Context<Engine>& context_;
    const Job& job_;
    const Options& options_;
    Split split_;
    sk::cp::CausalChunks part_;
    typename Engine::Communicator data_ranks_;
    DataOrder data_;
    Model model_;
    decltype(std::declval<Model&>().groups()) groups_;
    std::optional<sk::schedule::Following<Engine>> following_;
    std::unique_ptr<sk::Optimizer<Engine>> optimizer_;
    EngineLinks<Engine, Arithmetic<T>> links_;
    Workspace<T> work_;
    std::vector<sk::ValuesHash> gradient_hashes_;
    std::optional<SliceHashes> slice_hashes_;  // of a run with --slices whose hashes are asked for
    std::vector<double> losses_;               // one of each microbatch
    bool times_calls_ = false;
    CallTimes calls_;
    sk::schedule::MeasuredStep unled_;  // the last step that followed no schedule
};

}  // namespace train_gpt
