// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <shardkit/checkpoint/load.hpp>
#include <shardkit/checkpoint/save.hpp>
#include <shardkit/follow/follow.hpp>
#include <shardkit/follow/gather_steps.hpp>
#include <shardkit/follow/measured_step.hpp>
#include <shardkit/follow/trace.hpp>
#include <shardkit/optim/clip.hpp>
#include <shardkit/optim/norm.hpp>
#include <shardkit/optim/optimizer.hpp>
#include <shardkit/rank/all_reduce_value.hpp>
#include <shardkit/step/accumulation.hpp>
#include <shardkit/step/divisor.hpp>
#include <shardkit/step/model.hpp>
#include <shardkit/step/reduce.hpp>
#include <shardkit/step/slices.hpp>
#include <shardkit/verbs/all_reduce.hpp>
#include <shardkit/verbs/barrier.hpp>
#include <shardkit/verify/verify_replicas.hpp>

#include "../model/convert.hpp"
#include "../model/initialise.hpp"
#include "../model/router.hpp"
#include "data_order.hpp"
#include "engine_links.hpp"
#include "forward_backward.hpp"
#include "hashes.hpp"
#include "job.hpp"
#include "sample.hpp"
#include "sharded_model.hpp"
#include "tokens_ahead.hpp"
#include "workspace.hpp"

namespace train_gpt {

/// One rank's training run. The source is the same for every engine and place of its arithmetic, the program for
/// every policy. But for experts without a capacity, nothing in a step waits for a device or reads its memory, so
/// that a step can be captured into a graph.
template <class T, class Place>
class Trainer {
    using OfRank = Workspace<T, Place>;

  public:
    /// Takes all memory of the run, and reads what the run begins with. Collective over the mesh.
    /// `make`: returns the optimizer for groups and options.
    /// @throws FileError or std::invalid_argument, on every rank, when that cannot be read
    template <class Make>
    Trainer(sk::Rank& rank, const Job& job, const Make& make, const Place& place = {})
        : rank_(rank),
          job_(job),
          options_(job.options),
          place_(place),
          split_(split_of(rank, options_)),
          part_(split_.chunks(options_.model.sequence)),
          data_ranks_(rank.template sub_mesh<sk::Axes<sk::Dp, sk::Cp>>()),
          data_(job.text, options_.model.sequence, options_.seed),
          model_(rank, options_, place),
          groups_(model_.groups()),
          following_(begin(job)),
          optimizer_(make(groups_, options_)),
          links_(rank, options_),
          work_(rank, options_, links_, place),
          ahead_(rank, options_),
          losses_(work_.losses().size()),
          sums_(work_.sums().size()) {
        if (options_.slices > 0 && !options_.hashes.empty()) { slice_hashes_.emplace(groups_, options_.slices); }
        if (!job.start.folder.empty()) {
            sk::checkpoint::State state{groups_, *optimizer_};
            sk::checkpoint::load(rank, job.start.folder, state,
                                 {.names = tensor_names(job.start.names, options_.model)});
        }
    }

    /// Gives the memory of the place the tokens of step `number`, where every step reads them.
    void load(std::size_t number) {
        ahead_.load(
            number,
            [this](std::size_t step, Token* to) {
                for (std::size_t m = 0; m < options_.microbatches; ++m) { fill(step, first_sequence(m), m, to); }
            },
            place_, work_.tokens(0));
    }
    /// Gives the streams a step over the tokens that were loaded last.
    void step() {
        sk::Accumulation accumulation{groups_, options_.microbatches};
        const bool releases = options_.release == sk::GradientRelease::at_update;
        if (releases) { optimizer_->step_in_backward(accumulation, {.divisor = divisor()}); }
        model_.auxiliary = auxiliary_coefficient * divisor().factor();
        if (slice_hashes_) { slice_hashes_->begin_step(); }
        for (std::size_t m = 0; m < options_.microbatches; ++m) {
            if (slice_hashes_) { slice_hashes_->begin_slice(sk::slice_of(groups_, m)); }
            pass(accumulation, m);
        }
        const double max_norm = options_.clip > 0 ? options_.clip : sk::unlimited;
        if (releases || options_.hashes.empty()) {
            const auto norm = optimizer_->step(std::move(accumulation), {.divisor = divisor(), .max_norm = max_norm});
            if (!releases) { norm_ = norm; }
            return;
        }
        sk::Reduced reduced = sk::reduce(std::move(accumulation), divisor());
        const sk::TrafficLog before = rank_.traffic();  // without that of the hashes
        gradient_hashes_ = sk::hash_values(reduced);
        rank_.traffic() = before;
        norm_ = sk::global_norm(reduced);
        optimizer_->step(std::move(reduced), sk::clip(*norm_, max_norm));
    }
    /// Keeps the losses of the step that was given last, as those of step `number`.
    void keep_losses(std::size_t number) const {
        place_.each(options_.microbatches,
                    Convert<double, double>{work_.losses().data(), kept(work_.losses(), number).data()});
    }

    /// The losses of `count` steps from `first` on, each the mean over the global batch, of the newest options.every;
    /// with --slices the same for any number of ranks. Waits for the device. Collective over the data ranks.
    std::span<const double> losses(std::size_t first, std::size_t count) {
        sk::host::AnyKernels::copy_out(rank_.compute_stream(), std::span<const double>(work_.losses()),
                                       std::span(losses_));
        const std::span<double> sums = std::span(sums_).first(count);
        for (std::size_t s = 0; s < count; ++s) {
            const std::span<const double> parts = kept(std::span(losses_), first + s);
            sums[s] = options_.slices > 0 ? sk::exact_sum(rank_, data_ranks_, parts)
                                          : std::accumulate(parts.begin(), parts.end(), 0.0);
        }
        if (options_.slices == 0) { reduce_numbers(data_ranks_, sk::ReduceOp::sum, sums); }
        for (double& sum : sums) { sum /= static_cast<double>(options_.tokens_per_step()); }
        return sums;
    }
    /// Reduces each rank's numbers in memory that the run has, where all_reduce_value would take some. Waits for the
    /// device. Collective over `ranks`.
    void reduce_numbers(const sk::Communicator& ranks, sk::ReduceOp op, std::span<double> numbers) const {
        const auto compute = rank_.compute_stream();
        while (!numbers.empty()) {
            const std::span<double> there = work_.sums().first(std::min(work_.sums().size(), numbers.size()));
            const std::span<double> here = numbers.first(there.size());
            sk::host::AnyKernels::copy_in(compute, std::span<const double>(here), there);
            sk::all_reduce_in_place(ranks, op, there, compute);
            sk::host::AnyKernels::copy_out(compute, std::span<const double>(there), here);
            numbers = numbers.subspan(there.size());
        }
    }
    /// The last step's, before clipping; none with --release on. Waits for the device.
    std::optional<double> grad_norm() const { return norm_ ? std::optional(norm_->value()) : std::nullopt; }

    /// The lines of --hashes for what is in memory after so many steps, and for the last one's gradients, in the
    /// order in which one makes the other; with --release on gradients are never all in memory. Collective over the
    /// world.
    std::string hashes(std::size_t steps) {
        std::string lines = slice_hashes_ ? slice_hashes_->lines(rank_, steps) : std::string();
        lines += hash_lines(steps, "gradients", gradient_hashes_);
        lines += hash_lines(steps, "states", sk::hash_values(*optimizer_));
        return lines + hash_lines(steps, "parameters", sk::hash_values(groups_));
    }
    /// Compares what several ranks hold. Collective over the world. @throws sk::ReplicaError, on every rank
    void verify() { sk::verify_replicas(groups_, *optimizer_); }

    /// Times the steps to come, which follow a schedule.
    void measure() { following_->measure(); }
    /// A moment that is the same on all ranks, behind all work so far. Collective over the world.
    std::chrono::steady_clock::time_point together() const {
        sk::barrier(rank_.world(), rank_.compute_stream());
        rank_.synchronize();
        return std::chrono::steady_clock::now();
    }
    /// The last step's times, behind measure().
    sk::schedule::MeasuredStep measured() const { return following_->measured(); }

    /// That step's timeline on every rank, on rank 0; `start`: a moment that is the same on all ranks. Collective
    /// over the world.
    std::string trace(const sk::Schedule& schedule, std::chrono::steady_clock::time_point start) {
        const auto ranks = sk::schedule::gather_steps(rank_, following_->measured(), start);
        return rank_.rank() == 0 ? sk::schedule::trace(schedule, sk::describe_groups(groups_), ranks) : std::string();
    }

    /// Writes the state after so many steps into --save. Collective over the mesh. @returns the step's folder
    /// @throws FileError, on every rank, when it cannot be written
    std::string save(std::size_t steps) {
        auto strings = job_.identity;
        strings.emplace_back(names_key, program::name_of(name_kinds, options_.names));
        return sk::checkpoint::save(rank_, options_.save, steps, sk::checkpoint::State{groups_, *optimizer_},
                                    {.names = tensor_names(options_.names, options_.model),
                                     .strings = std::move(strings),
                                     .keep = options_.keep})
            .path;
    }

    std::string sample(std::size_t count) {
        const Token begin = job_.encoding.of_byte('\n');
        return job_.encoding.decode(
            train_gpt::sample(rank_, model_, work_.pass(), options_.model, split_, begin, count, options_.seed));
    }

    const sk::Model& model() const noexcept { return groups_; }

  private:
    /// Losses of tokens are divided by their number, and a router's by that of the passes that have one.
    sk::Divisor divisor() const {
        const sk::Divisor tokens = sk::divide_by(static_cast<double>(options_.tokens_per_step()));
        const std::size_t passes = options_.mesh.dp * options_.mesh.cp * options_.microbatches;
        return options_.model.experts > 0 ? tokens.beside(static_cast<double>(passes)) : tokens;
    }
    /// The number in the global batch of the first sequence of microbatch m.
    std::size_t first_sequence(std::size_t m) const {
        if (options_.slices > 0) { return sk::slice_of(groups_, m) * options_.microbatch_sequences(0); }
        return rank_.grid().coordinate(sk::Dp::name, rank_.rank()) * options_.sequences_per_rank() +
               options_.microbatch_begin(m);
    }
    /// Writes microbatch m, sequences of step `number` from number `begin` on, among a step's tokens.
    void fill(std::size_t number, std::size_t begin, std::size_t m, Token* step) {
        Token* const to = step + (work_.tokens(m) - work_.tokens(0));
        data_.fill(number, begin, options_.microbatch_sequences(m), part_, to,
                   to + (work_.targets(m) - work_.tokens(m)));
    }
    /// *losses of microbatch m become the sum of its tokens'.
    void pass(sk::Accumulation& accumulation, std::size_t m) {
        forward_backward(model_, accumulation, work_.pass(), {options_.microbatch_sequences(m), part_.tokens()},
                         work_.tokens(m), work_.targets(m), work_.losses().data() + m,
                         [this](const auto& layer, const auto& gradients) {
                             if (slice_hashes_) { slice_hashes_->add(layer, gradients); }
                         });
    }
    /// Where the losses of step `number` are kept, among those of Workspace::losses.
    std::span<double> kept(std::span<double> losses, std::size_t number) const {
        return losses.subspan((1 + number % options_.every) * options_.microbatches, options_.microbatches);
    }
    /// Gives a new run's model its first values, those of --init or random ones, and lets its steps follow their
    /// schedule: before the optimizer takes memory,
    /// because the buffers that windows share without a schedule are given back for it.
    std::optional<sk::schedule::Following> begin(const Job& job) {
        if (job.start.folder.empty() && options_.init.empty()) {
            groups_.initialize(Initialiser(options_.seed, options_.model));
        } else if (job.start.folder.empty()) {
            sk::checkpoint::load_model(rank_, options_.init, groups_,
                                       {.names = tensor_names(options_.names, options_.model, job.start.prefix),
                                        .subset = job.start.subset});
        }
        if (!job.chosen.schedule) { return std::nullopt; }
        return sk::schedule::follow(groups_, *job.chosen.schedule);
    }

    sk::Rank& rank_;
    const Job& job_;
    const Options& options_;
    Place place_;
    Split split_;
    sk::cp::CausalChunks part_;
    sk::Communicator data_ranks_;
    DataOrder data_;
    ShardedModel<T, Place> model_;
    sk::Model groups_;
    std::optional<sk::schedule::Following> following_;
    std::unique_ptr<sk::Optimizer> optimizer_;
    EngineLinks<typename OfRank::OfPass::S> links_;
    OfRank work_;
    TokensAhead<Place> ahead_;
    std::vector<double> losses_, sums_;   // as the workspace has them
    std::optional<sk::GlobalNorm> norm_;  // of the last step, where its gradients were all there
    std::vector<sk::ValuesHash> gradient_hashes_;
    std::optional<SliceHashes> slice_hashes_;  // of a run with --slices whose hashes are asked for
};

}  // namespace train_gpt
