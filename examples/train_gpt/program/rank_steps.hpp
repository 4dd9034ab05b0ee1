// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <shardkit/rank/all_reduce_value.hpp>
#include <shardkit/rank/rank.hpp>

#include "../../common/text_format.hpp"
#include "../allocation_counter.hpp"
#include "../model/matrix.hpp"
#include "trainer.hpp"

namespace train_gpt {

/// Refuses to train on with numbers that mean nothing any more; the same on every rank.
inline void require_finite(std::size_t step, double loss, std::optional<double> grad_norm, const Job& job) {
    if (std::isfinite(loss) && std::isfinite(grad_norm.value_or(0))) { return; }
    const auto text = [](double value) {
        return std::isnan(value) ? std::string("nan") : program::formatted("%.4g", value);
    };
    throw std::runtime_error("step " + std::to_string(step + 1) + ": the loss is " + text(loss) +
                             (grad_norm ? ", the gradient norm " + text(*grad_norm) : std::string()) +
                             ", expected finite numbers: training diverged, with --lr " +
                             text(job.options.learning_rate));
}

/// The signal that came to any rank by now, the same on every rank: they reach ranks at different times. 0 where none
/// did, or where nobody asks. Collective over the world.
inline int agreed_signal(sk::Rank& rank, const Job& job) {
    if (!job.signal) { return 0; }
    const auto signal = static_cast<std::uint64_t>(job.signal());
    return static_cast<int>(sk::all_reduce_value(rank, signal, sk::ReduceOp::max));
}

/// The steps of a run on one rank, whose arithmetic is in a Place.
template <class T, class Place>
class RankSteps {
  public:
    using OfRank = Trainer<T, Place>;

    /// `results`: written where they are given, by rank 0 at least; their vectors have their sizes already.
    /// `counted`: what this rank allocates, by which a host's steps are measured; null on devices. `make`, `place`:
    /// as the trainer's.
    template <class Make>
    RankSteps(sk::Rank& rank, const Job& job, Results* results, const CountedAllocations* counted, const Make& make,
              const Place& place = {})
        : rank_(rank), job_(job), counted_(counted), results_(results), trainer_(rank, job, make, place) {}

    /// All of them, or up to a signal: whether it was all. `give`: give(trainer) gives the streams the next step.
    template <class Give>
    bool run(const Give& give) {
        const std::size_t first = job_.start.first_step;
        const std::size_t end = job_.options.steps;
        // The first steps may still take memory (communicators' and libraries' lazy buffers).
        const std::size_t warm_up = std::min<std::size_t>(2, std::max<std::size_t>(end - first, 1) - 1);
        const std::size_t timed = counted_ != nullptr ? most_timed : 1;
        const std::size_t first_timed = std::max(first + warm_up, end - std::min(end, timed));
        const bool times = job_.chosen.schedule && (counted_ != nullptr || traces());
        std::size_t known = first;  // so many steps' losses are read
        hash(first);
        start_ = Clock::now();
        for (std::size_t s = first; s < end; ++s) {
            const bool last = s + 1 == end;
            if (last && traces()) { together_ = trainer_.together(); }
            if (last) {
                rank_.traffic().clear();
                multiply_adds_before_ = multiply_adds();
            }
            if (s == first_timed && times) { trainer_.measure(); }
            rank_.set_step(static_cast<std::uint32_t>(s + 1));
            if (rank_.rank() == job_.options.slow_rank && job_.options.slow_seconds > 0) {
                std::this_thread::sleep_for(std::chrono::duration<double>(job_.options.slow_seconds));
            }
            const std::uint64_t before = allocations();
            trainer_.load(s);
            give(trainer_);
            trainer_.keep_losses(s);
            const bool reads = last || (s - first) % job_.options.every == 0;
            const auto losses = reads ? trainer_.losses(known, s + 1 - known) : std::span<const double>();
            const auto grad_norm = reads ? trainer_.grad_norm() : std::nullopt;
            for (const double loss : losses) {
                require_finite(known, loss, known == s ? grad_norm : std::nullopt, job_);
                ++known;
            }
            if (s - first >= warm_up) {
                allocations_ += allocations() - before;
                ++steady_;
            }
            if (s >= first_timed && times) {
                const sk::schedule::MeasuredStep step = trainer_.measured();
                ++timed_steps_;
                timed_.seconds += step.seconds;
                timed_.compute += step.compute;
                timed_.communication += step.communication;
            }
            if (reads) { report(s, losses, grad_norm); }
            if (last) { measure(); }
            if (last && traces()) {
                std::string trace = trainer_.trace(*job_.chosen.schedule, together_);
                if (reports()) { results_->trace = std::move(trace); }
            }
            hash(s + 1);
            // Before a save, so that a checkpoint has what was verified.
            if (job_.options.verify_every != 0 && (s + 1) % job_.options.verify_every == 0) { trainer_.verify(); }
            const int signal = last && job_.options.sample == 0 ? 0 : agreed_signal(rank_, job_);
            if (job_.options.saves(s + 1, last || signal != 0)) {
                std::string folder = trainer_.save(s + 1);
                if (reports()) { results_->saved = std::move(folder); }
            }
            if (signal == 0) { continue; }
            if (reports()) {
                results_->signal = signal;
                results_->losses.resize(s + 1 - first);
            }
            return false;
        }
        if (reports() && job_.trained) { job_.trained(); }
        if (job_.group_trained) { trainer_.model().for_each(job_.group_trained); }
        return true;
    }

    OfRank& trainer() noexcept { return trainer_; }

  private:
    using Clock = std::chrono::steady_clock;
    static constexpr std::size_t most_timed = 10;  // of the last steps

    bool reports() const { return results_ != nullptr; }
    bool traces() const { return job_.chosen.schedule && !job_.options.trace.empty(); }

    /// `losses`: of the last steps up to this one.
    void report(std::size_t step, std::span<const double> losses, std::optional<double> grad_norm) {
        if (!reports()) { return; }
        const std::size_t done = step - job_.start.first_step;
        std::ranges::copy(losses, std::span(results_->losses).subspan(done + 1 - losses.size()).begin());
        if (grad_norm) { results_->grad_norms.push_back(*grad_norm); }
        // Of a run of several steps the first is not timed: it takes memory. Where reports are rare, each has the
        // speed since the one before.
        const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
        results_->tokens_per_second =
            static_cast<double>(std::max<std::size_t>(done - timed_from_, 1) * job_.options.tokens_per_step()) /
            seconds;
        if (job_.after_step) { job_.after_step({step, losses.back(), grad_norm, results_->tokens_per_second}); }
        if (done == 0 || job_.options.every > 1) {
            start_ = Clock::now();
            timed_from_ = done;
        }
    }

    std::uint64_t allocations() const { return counted_ != nullptr ? counted_->allocations() : 0; }

    /// What the ranks took and made: memory of the run, and work and traffic of its last step. Collective over the
    /// world.
    void measure() {
        Work work{.layers = multiply_adds().all - multiply_adds_before_.all};
        const std::uint64_t attention = multiply_adds().attention - multiply_adds_before_.attention;
        // What the engine places is not allocated as other memory is.
        const std::uint64_t peak =
            (counted_ != nullptr ? counted_->peak_bytes() : 0) + rank_.world().most_placed_bytes();
        std::array<double, 3> most{static_cast<double>(peak), static_cast<double>(attention),
                                   -static_cast<double>(attention)};
        auto collectives = mean_collectives();
        trainer_.reduce_numbers(rank_.world(), sk::ReduceOp::max, most);
        work.layers -= attention;
        work.attention_most = static_cast<std::uint64_t>(most[1]);
        work.attention_least = static_cast<std::uint64_t>(-most[2]);
        for (double* const sum : {&timed_.seconds, &timed_.compute, &timed_.communication}) {
            trainer_.reduce_numbers(rank_.world(), sk::ReduceOp::sum, {sum, 1});
            *sum /= static_cast<double>(std::max<std::size_t>(timed_steps_, 1) * rank_.world_size());
        }
        if (!reports()) { return; }
        results_->peak_bytes_per_rank = static_cast<std::uint64_t>(most[0]);
        results_->allocations_per_steady_step = (allocations_ + steady_ - 1) / steady_;
        results_->work = work;
        results_->timed_steps = timed_steps_;
        results_->timed = timed_;
        results_->collectives = std::move(collectives);
    }
    /// What a rank communicated since the log was cleared, as the mean over the ranks: the sum of a few numbers has
    /// no part for every rank, so that one of them moves more bytes than the others. Collective over the world.
    Collectives mean_collectives() const {
        const auto rows = rank_.traffic().rows();
        std::vector<double> sums;
        for (const auto& row : rows) {
            for (const std::uint64_t number : {row.calls, row.moved.value, row.payload.value}) {
                sums.push_back(static_cast<double>(number));
            }
        }
        trainer_.reduce_numbers(rank_.world(), sk::ReduceOp::sum, sums);
        Collectives collectives;
        for (std::size_t r = 0; r < rows.size(); ++r) {
            const auto mean = [&](std::size_t field) {
                return static_cast<std::uint64_t>(
                    std::llround(sums[3 * r + field] / static_cast<double>(rank_.world_size())));
            };
            if (sums[3 * r] == 0) { continue; }
            collectives[{rows[r].axes, std::string(name(rows[r].verb))}] = {
                mean(0), sk::ByteCount(mean(2)), sk::ByteCount(mean(1)), {}};
        }
        return collectives;
    }

    void hash(std::size_t steps) {
        if (job_.options.hashes.empty()) { return; }
        const std::string lines = trainer_.hashes(steps);
        if (reports() && job_.hashed) { job_.hashed(lines); }
    }

    sk::Rank& rank_;
    const Job& job_;
    const CountedAllocations* counted_;
    Results* results_;
    OfRank trainer_;
    Clock::time_point start_;
    std::size_t timed_from_ = 0;  // so many steps before it
    Clock::time_point together_;  // behind a barrier before the last step
    std::uint64_t allocations_ = 0;
    std::uint64_t steady_ = 0;  // steps, in which they were made
    MultiplyAdds multiply_adds_before_;
    std::size_t timed_steps_ = 0;
    sk::schedule::MeasuredStep timed_;  // sums over them
};

}  // namespace train_gpt
