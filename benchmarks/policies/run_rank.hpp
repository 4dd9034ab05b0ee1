// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <limits>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <shardkit/comm/engine_traits.hpp>
#include <shardkit/plan/time_model.hpp>
#include <shardkit/rank/rank.hpp>

#include "../common/measure.hpp"
#include "../common/pin.hpp"
#include "job.hpp"
#include "links.hpp"
#include "trainer.hpp"

namespace benchmarks::policies {

/// The check run on one rank, where nothing is communicated. T: double, float or bf16.
template <class T>
Reference<T> train_alone(const Job& job);

/// By how much a result may differ from one rank's: the norm is summed in another order, and what that does to the
/// last bit of an update may round a 16-bit parameter the other way.
template <class T>
constexpr double difference_bound() noexcept {
    using Number = shardkit::Arithmetic<T>;
    return sizeof(T) == 2 ? 1.0 / 128 : 256 * static_cast<double>(std::numeric_limits<Number>::epsilon());
}

/// One step's collectives by the log, the closed form and the plan.
template <class T>
void count_traffic(shardkit::Rank& rank, const Job& job, Trainer<T>& trainer, const ScheduleChoice& schedule,
                   Row& row) {
    rank.traffic().clear();
    trainer.record();
    const auto traits = traits_of(job.options, job.mesh, row.policy);
    const std::string across = across_groups(traits, rank.grid());
    std::array<std::uint64_t, 3 * step_verbs.size()> counted{};
    for (std::size_t i = 0; i < step_verbs.size(); ++i) {
        const auto total = rank.traffic().total(step_verbs[i]);
        counted[3 * i] = total.calls;
        counted[3 * i + 1] = total.moved.value;
        for (const auto& entry : rank.traffic().entries()) {
            if (entry.verb == step_verbs[i] && entry.axes == across) { counted[3 * i + 2] += entry.moved.value; }
        }
    }
    reduce_over_world(rank, shardkit::ReduceOp::sum, std::span<std::uint64_t>(counted));
    const auto ranks = static_cast<double>(rank.world_size());
    const shardkit::Plan plan = trainer.plan();
    const Theory expected =
        theory(job.options, job.mesh, row.policy, rank.world().traits(),
               trainer.follows() ? trainer.gathers() : std::vector<std::size_t>(), schedule.reduces_last);
    for (std::size_t i = 0; i < step_verbs.size(); ++i) {
        const auto planned = plan.traffic.total(step_verbs[i]);
        row.traffic[i] = {static_cast<double>(counted[3 * i]) / ranks,
                          static_cast<double>(counted[3 * i + 1]) / ranks,
                          expected[i],
                          static_cast<double>(planned.calls),
                          static_cast<double>(planned.moved.value),
                          static_cast<double>(counted[3 * i + 2]) / ranks,
                          static_cast<double>(plan.traffic(step_verbs[i], across).moved.value)};
    }
    row.shard_group = row.policy == program::PolicyKind::no_shard ? 1 : traits.shard_group;
    row.planned_bytes = plan.memory.total().value;
    if (job.links != nullptr) {
        const shardkit::planner::TimeModel model{*job.links, *job.links, 0};
        row.predicted = shardkit::planner::communication_seconds(plan.traffic, rank.grid(), model);
    }
}

/// Rounds in which every policy makes a step, its computation and its communication, all ranks at once.
template <class T>
void time_steps(shardkit::Rank& rank, const Options& options,
                const std::vector<std::unique_ptr<Trainer<T>>>& trainers, std::vector<Row>& rows) {
    const std::size_t rounds = options.rounds;
    std::vector<Interval> own(trainers.size() * 3 * rounds);
    for (std::size_t round = 0; round < rounds; ++round) {
        for (std::size_t p = 0; p < trainers.size(); ++p) {
            Interval* const each = own.data() + 3 * p * rounds + round;
            each[0] = timed(rank, [&] { trainers[p]->step(options.steps); });
            each[rounds] = timed(rank, [&] { trainers[p]->compute(options.steps); });
            each[2 * rounds] = timed(rank, [&] { trainers[p]->communicate(options.steps); });
        }
    }
    std::vector<double> seconds = world_seconds(rank, std::span<const Interval>(own));
    for (double& each : seconds) { each /= static_cast<double>(options.steps); }
    for (std::size_t p = 0; p < trainers.size(); ++p) {
        const auto spread = [&](std::size_t variant) {
            const auto begin = seconds.begin() + static_cast<std::ptrdiff_t>((3 * p + variant) * rounds);
            return summarise({begin, begin + static_cast<std::ptrdiff_t>(rounds)});
        };
        rows[p].step = spread(0);
        rows[p].compute = spread(1);
        rows[p].communication = spread(2);
    }
}

/// Everything that the options ask for on one mesh, on one of its ranks. Collective over the world.
/// @throws std::runtime_error when the world has other ranks than were asked for
template <class T>
void run_rank(shardkit::Rank& rank, const Job& job, const Reference<T>& reference, const RowSink& sink) {
    if (rank.world_size() != job.mesh.world()) {
        throw std::runtime_error("the engine gave " + std::to_string(rank.world_size()) + " ranks, expected " +
                                 std::to_string(job.mesh.world()));
    }
    if (job.options.pin) { pin_to(allowed_processors(), rank.rank()); }
    std::vector<std::unique_ptr<Trainer<T>>> trainers;
    std::vector<Row> rows;
    for (const program::PolicyKind policy : job.options.policies) {
        for (const ScheduleChoice& schedule : job.options.schedules) {
            trainers.push_back(std::make_unique<Trainer<T>>(rank, job.options, job.busy,
                                                            job.options.policy_on(job.mesh, policy), schedule));
            Trainer<T>& trainer = *trainers.back();
            Row row;
            row.mesh = job.mesh;
            row.policy = policy;
            row.schedule = schedule.text;
            row.difference = trainer.largest_difference(reference);
            row.bound = difference_bound<T>();
            reduce_over_world(rank, shardkit::ReduceOp::max, std::span<double>(&row.difference, 1));
            trainer.follow();
            // The check's last windows have gathered what no other step finds gathered. Whatever the warm-up, what is
            // counted and repeated is a step behind a step.
            trainer.step();
            for (std::size_t i = 0; i < job.options.warmup; ++i) { trainer.step(); }
            count_traffic(rank, job, trainer, schedule, row);
            row.peak_bytes = trainer.peak_bytes();
            reduce_over_world(rank, shardkit::ReduceOp::max, std::span<std::uint64_t>(&row.peak_bytes, 1));
            rows.push_back(row);
        }
    }
    time_steps(rank, job.options, trainers, rows);
    for (std::size_t i = 0; i < rows.size() && job.links != nullptr; ++i) {
        rows[i].simulated = trainers[i]->simulated(rows[i].compute.median, *job.links);
    }
    if (rank.rank() != 0) { return; }
    for (const Row& row : rows) { sink(row); }
}

}  // namespace benchmarks::policies
