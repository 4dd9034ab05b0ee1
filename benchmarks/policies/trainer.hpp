// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <shardkit/follow/follow.hpp>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/optim/clip.hpp>
#include <shardkit/optim/norm.hpp>
#include <shardkit/optim/sgd.hpp>
#include <shardkit/plan/plan_model.hpp>
#include <shardkit/policy/dynamic_policy.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/schedule/dry_step.hpp>
#include <shardkit/schedule/passes.hpp>
#include <shardkit/schedule/scheduled_plan.hpp>
#include <shardkit/schedule/simulate.hpp>
#include <shardkit/sharded/sharded.hpp>
#include <shardkit/step/accumulation.hpp>
#include <shardkit/step/reduce.hpp>

#include "call_log.hpp"
#include "counted_memory.hpp"
#include "elements.hpp"
#include "job.hpp"
#include "options.hpp"

namespace benchmarks::policies {

/// What one rank alone makes of the check run: the parameters of every group before each step and after the last.
template <class T>
using Reference = std::vector<std::vector<std::vector<T>>>;

/// One policy's model on one rank, with its own Rank, pools and account, over the world of `rank`. Its calls
/// are collective over the world.
template <class T>
class Trainer {
    using Communicator = shardkit::Communicator;
    using Group = shardkit::Sharded<Elements<T>, shardkit::DynamicPolicy>;
    using Model = std::vector<Group>;
    using Number = shardkit::Arithmetic<T>;

    static constexpr std::size_t check_steps = 3;

  public:
    Trainer(shardkit::Rank& rank, const Options& options, const BusyWork& busy, const shardkit::DynamicPolicy& policy,
            const ScheduleChoice& choice = {})
        : options_(&options),
          choice_(choice),
          account_(std::make_shared<ByteAccount>()),
          rank_(rank.grid(), Communicator(std::make_shared<CountedVerbs>(rank.world().verbs(), account_)),
                {.in_flight = options.in_flight(choice)},
                options.overlaps(choice) ? rank.streams() : shardkit::Streams{}) {
        groups_.reserve(options.groups.size());
        for (std::size_t g = 0; g < options.groups.size(); ++g) {
            groups_.emplace_back(rank_, options.groups[g].path,
                                 shardkit::Shapes<Elements<T>>{shardkit::shape<Elements<T>>(options.groups[g].numel)},
                                 typename Group::Options{policy, {}, {}});
            links_.push_back(busy.links_for(options.forward_seconds(g)));
        }
        const shardkit::Model model{groups_};
        if (options.optimizer == OptimizerKind::adamw) {
            optimizer_ = std::make_unique<shardkit::AdamW>(model, shardkit::AdamWOptions{.learning_rate = 1.0 / 16});
        } else {
            optimizer_ = std::make_unique<shardkit::SGD>(
                model,
                shardkit::SgdOptions{.learning_rate = 0.5, .rule = shardkit::Momentum::classical, .momentum = 0.5});
        }
        if (choice.kind == ScheduleChoice::Kind::passes) { schedule_ = made(); }
        follow();
    }

    /// From here on steps follow the schedule, if there is one, and the bytes that are held count anew: what windows
    /// outside of steps took is given back.
    void follow() {
        if (!schedule_) { return; }
        following_.reset();
        following_.emplace(shardkit::schedule::follow(shardkit::Model{groups_}, *schedule_));
        account_->peak = account_->current;
    }
    bool follows() const noexcept { return schedule_.has_value(); }
    /// Times that each group is gathered in a step that follows the schedule.
    std::vector<std::size_t> gathers() const {
        std::vector<std::size_t> times(groups_.size());
        for (const shardkit::schedule::Op& op : schedule_->ops()) {
            times[op.group] += op.act == shardkit::schedule::Act::gather ? 1 : 0;
        }
        return times;
    }
    /// Seconds of a step of the schedule, or of the one without, whose computation takes `compute`, busy work and,
    /// by elements, updates.
    double simulated(double compute, const shardkit::planner::TimeModel::Links& links) {
        const auto groups = shardkit::describe_groups(shardkit::Model{groups_});
        const auto seconds = group_seconds(std::max(0.0, compute - options_->busy_seconds()));
        using shardkit::schedule::CommunicationLanes;
        // Threads that communicate need a processor.
        const bool spare = options_->work_elsewhere || options_->spare_processor(rank_.grid().size());
        const bool beside = options_->overlaps(choice_) && spare;
        const auto lanes = beside ? CommunicationLanes::two : CommunicationLanes::in_compute;
        const shardkit::Schedule step = schedule_ ? *schedule_ : by_hand(dry_step(groups), groups);
        return shardkit::schedule::simulate(shardkit::schedule::on_lanes(step, lanes), groups, rank_.grid(),
                                            costs(seconds, links))
            .seconds;
    }

    /// Trains from the beginning with known gradients. The largest difference of any element that a window shows, or
    /// that is there at the end, from the reference, over the larger of 1 and the element.
    double largest_difference(const Reference<T>& reference) {
        double largest = 0;
        check_run([&](std::size_t step, std::size_t g, std::span<const T> values) {
            const std::vector<T>& expected = reference[step][g];
            for (std::size_t i = 0; i < values.size(); ++i) {
                largest = std::max(largest, difference(values[i], expected[i]));
            }
        });
        return largest;
    }

    /// The same run as a reference.
    Reference<T> reference() {
        Reference<T> parameters(check_steps + 1, std::vector<std::vector<T>>(groups_.size()));
        check_run([&](std::size_t step, std::size_t g, std::span<const T> values) {
            parameters[step][g].assign(values.begin(), values.end());
        });
        return parameters;
    }

    /// So many steps with busy work, one behind the other.
    void step(std::size_t steps = 1) {
        const auto work = [&](std::size_t g, std::uint64_t times) {
            const std::size_t slow_rank = options_->slow_in_turns ? works_++ % rank_.world_size() : 0;
            const double longer = rank_.rank() == slow_rank ? 1 + options_->slow_percent / 100 : 1;
            if (options_->work_elsewhere) {
                BusyWork::wait(longer * static_cast<double>(times) * options_->forward_seconds(g));
            } else {
                BusyWork::run(times * static_cast<std::uint64_t>(longer * static_cast<double>(links_[g])));
            }
        };
        const auto forward = [&](std::size_t g, std::span<const T>) { work(g, 1); };
        const auto backward = [&](std::size_t g, std::size_t, std::span<const T>, std::span<T> gradient) {
            work(g, 2);
            // What is computed elsewhere does not pass through this processor; the gradients are zero, then.
            if (!options_->work_elsewhere) { std::fill(gradient.begin(), gradient.end(), static_cast<T>(0.25F)); }
        };
        for (std::size_t i = 0; i < steps; ++i) { run_step(forward, backward); }
        rank_.synchronize();
    }
    /// The same without their collectives.
    void compute(std::size_t steps) {
        log_.silently(journal(), [&] { step(steps); });
    }
    /// A step whose collectives are remembered.
    void record() {
        log_.record(journal(), [&] { step(); });
    }
    /// These collectives alone, back to back, of so many steps.
    void communicate(std::size_t steps) {
        for (std::size_t i = 0; i < steps; ++i) { log_.replay(rank_.communication_stream()); }
        rank_.communication_stream().synchronize();
    }

    std::size_t peak_bytes() const { return account_->peak; }
    shardkit::Plan plan() {
        if (schedule_) {
            return shardkit::schedule::plan(
                *schedule_, shardkit::describe_groups(shardkit::Model{groups_}), rank_.grid(),
                {.optimizer_states = options_->optimizer_states(), .engine = rank_.world().traits()});
        }
        return shardkit::plan(shardkit::Model{groups_}, {.microbatches = options_->microbatches,
                                                         .in_flight = options_->in_flight(choice_),
                                                         .optimizer_states = options_->optimizer_states()});
    }

  private:
    using Groups = std::span<const shardkit::planner::GroupDescription>;

    /// Of each group's busy work, and its part of so many seconds for updates.
    std::vector<shardkit::schedule::GroupSeconds> group_seconds(double updates) const {
        std::vector<shardkit::schedule::GroupSeconds> seconds;
        for (std::size_t g = 0; g < options_->groups.size(); ++g) {
            const double forward = options_->forward_seconds(g);
            seconds.push_back(
                {forward, 2 * forward,
                 updates * static_cast<double>(options_->groups[g].numel) / static_cast<double>(options_->numel())});
        }
        return seconds;
    }
    shardkit::schedule::StepCosts costs(std::span<const shardkit::schedule::GroupSeconds> seconds,
                                        const shardkit::planner::TimeModel::Links& links) const {
        return {seconds, {links, links, 0}, rank_.world().traits()};
    }
    /// The step as run_step makes it.
    shardkit::Schedule dry_step(Groups groups) const {
        shardkit::schedule::DryStep step(groups, options_->microbatches);
        for (std::size_t m = 0; m < options_->microbatches; ++m) {
            for (std::size_t g = 0; g < groups.size(); ++g) { step.unshard(g).reshard(g); }
            for (std::size_t g = groups.size(); g-- > 0;) { step.unshard(g).gradients(g).add(g).reshard(g); }
        }
        return step.reduce().global_norm().step().schedule();
    }
    /// By hand.
    bool prefetches() const noexcept { return options_->prefetches(choice_); }
    /// What a trainer that begins windows ahead does: groups that are alike take turns in two gradient buffers, too.
    shardkit::Schedule by_hand(const shardkit::Schedule& step, Groups groups) const {
        return prefetches()
                   ? shardkit::schedule::overlap_reductions(shardkit::schedule::prefetch(step, groups, 1), groups)
                   : step;
    }
    shardkit::Schedule made() {
        const auto groups = shardkit::describe_groups(shardkit::Model{groups_});
        shardkit::Schedule step = dry_step(groups);
        if (choice_.reduces_last) { step = shardkit::schedule::reduce_last(step, groups); }
        if (choice_.keeps) {
            const shardkit::ByteCount limit =
                choice_.limit > 0 ? shardkit::ByteCount(choice_.limit) : plan().memory.total();
            step = shardkit::schedule::keep_gathered(step, groups, limit, options_->optimizer_states());
        }
        step = shardkit::schedule::prefetch(step, groups, choice_.depth);
        if (choice_.overlaps_reductions) { step = shardkit::schedule::overlap_reductions(step, groups); }
        if (choice_.gathers_after_update) { step = shardkit::schedule::gather_after_update(step, groups); }
        return step;
    }

    shardkit::engine::Journal& journal() const { return rank_.world().label().journal; }

    static double difference(T value, T expected) noexcept {
        const double a = static_cast<double>(static_cast<Number>(value));
        const double b = static_cast<double>(static_cast<Number>(expected));
        const double far = std::abs(a - b) / std::max(1.0, std::abs(b));
        return std::isnan(far) ? std::numeric_limits<double>::infinity() : far;
    }

    /// forward(group, parameters), then backward(group, microbatch, parameters, gradient) in reverse, for every
    /// microbatch; where the trainer prefetches by itself, the next window begins before the work in this one.
    template <class Forward, class Backward>
    void run_step(Forward forward, Backward backward) {
        using Pending = typename Group::PendingWindow;
        const shardkit::Model model{groups_};
        const std::size_t n = groups_.size();
        shardkit::Accumulation accumulation{model, options_->microbatches};
        for (std::size_t m = 0; m < options_->microbatches; ++m) {
            const auto pass = [&](auto group_at, auto work) {
                std::optional<Pending> next;
                for (std::size_t i = 0; i < n; ++i) {
                    Group& group = groups_[group_at(i)];
                    auto window = next ? std::move(*next).wait() : group.unshard();
                    next.reset();
                    if (prefetches() && i + 1 < n) { next.emplace(groups_[group_at(i + 1)].begin_unshard()); }
                    const auto values = window[Elements<T>{}];
                    work(group, group_at(i), std::span<const T>(values.data(), values.size()));
                    group.reshard(std::move(window));
                }
            };
            pass([](std::size_t i) { return i; },
                 [&](Group&, std::size_t g, std::span<const T> values) { forward(g, values); });
            pass([n](std::size_t i) { return n - 1 - i; },
                 [&](Group& group, std::size_t g, std::span<const T> values) {
                     auto gradients = accumulation.gradients(group);
                     const auto gradient = gradients[Elements<T>{}];
                     backward(g, m, values, std::span<T>(gradient.data(), gradient.size()));
                     accumulation.add(std::move(gradients));
                 });
        }
        // Low enough to clip, high enough for an error in the gradients to show.
        optimizer_->step(std::move(accumulation),
                         {.max_norm = std::sqrt(static_cast<double>(options_->numel())) / 4});
    }

    /// visit(step, group, parameters) in every window, and once more at the end.
    template <class Visit>
    void check_run(Visit visit) {
        for (std::size_t g = 0; g < groups_.size(); ++g) {
            groups_[g].initialize([&](auto, auto, std::uint64_t i) { return Values::parameter(g, i); });
        }
        const shardkit::AxisGrid& grid = rank_.grid();
        const std::size_t dp = grid.extent(shardkit::Dp::name);
        const std::size_t cp = grid.extent(shardkit::Cp::name);
        const std::size_t data_rank = grid.coordinate(shardkit::Dp::name, rank_.rank()) * cp +
                                      grid.coordinate(shardkit::Cp::name, rank_.rank());
        for (std::size_t step = 0; step < check_steps; ++step) {
            const auto forward = [&](std::size_t g, std::span<const T> values) { visit(step, g, values); };
            const auto backward = [&](std::size_t g, std::size_t m, std::span<const T> values,
                                      std::span<T> gradient) {
                visit(step, g, values);
                for (std::size_t i = 0; i < gradient.size(); ++i) {
                    const double value =
                        Values::mean_gradient(g, i, step, m) + Values::deviation(i, data_rank, dp * cp);
                    gradient[i] = static_cast<T>(static_cast<Number>(gradient[i]) + static_cast<Number>(value));
                }
            };
            run_step(forward, backward);
        }
        for (std::size_t g = 0; g < groups_.size(); ++g) {
            const auto window = groups_[g].unshard();
            const auto values = window[Elements<T>{}];
            visit(check_steps, g, std::span<const T>(values.data(), values.size()));
        }
        rank_.synchronize();
    }

    const Options* options_;
    ScheduleChoice choice_;
    CallLog<Communicator, T> log_;
    std::shared_ptr<ByteAccount> account_;
    shardkit::Rank rank_;
    Model groups_;
    std::vector<std::uint64_t> links_;
    std::unique_ptr<shardkit::Optimizer> optimizer_;
    std::optional<shardkit::Schedule> schedule_;
    std::optional<shardkit::schedule::Following> following_;
    std::size_t works_ = 0;
};

}  // namespace benchmarks::policies
