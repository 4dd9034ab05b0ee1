// SPDX-License-Identifier: Apache-2.0
// Every order in which ranks and lanes can run a schedule, for all valid schedules of up to six operations: none of
// them waits for ever. What waits for what is written down here, not taken from the library.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include <doctest/doctest.h>

#include "unit/schedule/described_models.hpp"

namespace explore_test {

namespace {

namespace sk = shardkit;
using sk::Act;
using sk::Op;

constexpr std::size_t lanes = 3;

bool communicates(const Op& op) { return op.act == Act::gather || op.act == Act::reduce; }

/// One rank's operations by lane, and for each the operations of the rank that have to be over before it starts.
struct RankOrder {
    std::vector<Op> ops;
    std::array<std::vector<std::size_t>, lanes> by_lane;
    std::vector<std::vector<std::size_t>> behind;

    explicit RankOrder(const sk::Schedule& schedule) {
        const auto list = schedule.ops();
        ops.assign(list.begin(), list.end());
        for (std::size_t i = 0; i < ops.size(); ++i) {
            by_lane[static_cast<std::size_t>(ops[i].lane)].push_back(i);
            behind.emplace_back();
            const auto last = [&](Act act) {
                for (std::size_t k = i; k-- > 0;) {
                    if (ops[k].act == act && ops[k].group == ops[i].group) {
                        behind[i].push_back(k);
                        return;
                    }
                }
            };
            if (ops[i].act == Act::gather) { last(Act::close); }  // its buffer
            if (ops[i].act == Act::use) { last(Act::gather); }
            if (ops[i].act == Act::zero) { last(Act::reduce); }  // its buffer
            if (ops[i].act == Act::reduce) { last(Act::add); }
        }
    }
};

/// How far each lane of each rank is.
using State = std::vector<std::array<std::uint8_t, lanes>>;

class Exploration {
  public:
    explicit Exploration(std::vector<RankOrder> ranks) : ranks_(std::move(ranks)) {}

    /// A state in which nothing can go on although something is left.
    std::optional<State> deadlock() {
        std::vector<State> waiting{State(ranks_.size())};
        std::set<State> seen{waiting.front()};
        while (!waiting.empty()) {
            const State now = waiting.back();
            waiting.pop_back();
            const std::vector<State> next = behind(now);
            if (next.empty() && !over(now)) { return now; }
            for (const State& each : next) {
                if (seen.insert(each).second) { waiting.push_back(each); }
            }
        }
        states_ = seen.size();
        return std::nullopt;
    }
    std::size_t states() const { return states_; }

  private:
    /// The operation at the head of a lane, where it may start.
    std::optional<Op> ready(const State& now, std::size_t rank, std::size_t lane) const {
        const RankOrder& order = ranks_[rank];
        if (now[rank][lane] == order.by_lane[lane].size()) { return std::nullopt; }
        const std::size_t op = order.by_lane[lane][now[rank][lane]];
        for (const std::size_t before : order.behind[op]) {
            const auto& its_lane = order.by_lane[static_cast<std::size_t>(order.ops[before].lane)];
            const auto at = static_cast<std::size_t>(std::ranges::find(its_lane, before) - its_lane.begin());
            if (now[rank][static_cast<std::size_t>(order.ops[before].lane)] <= at) { return std::nullopt; }
        }
        return order.ops[op];
    }
    std::vector<State> behind(const State& now) const {
        std::vector<State> next;
        for (std::size_t lane = 0; lane < lanes; ++lane) {
            std::size_t meeting = 0;
            const std::optional<Op> first = ready(now, 0, lane);
            for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
                const std::optional<Op> op = ready(now, rank, lane);
                if (!op) { continue; }
                if (communicates(*op)) {
                    meeting += op == first ? 1U : 0U;
                } else {
                    next.push_back(now);
                    ++next.back()[rank][lane];
                }
            }
            if (first && communicates(*first) && meeting == ranks_.size()) {  // all ranks are there
                next.push_back(now);
                for (auto& rank : next.back()) { ++rank[lane]; }
            }
        }
        return next;
    }
    bool over(const State& now) const {
        for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
            for (std::size_t lane = 0; lane < lanes; ++lane) {
                if (now[rank][lane] < ranks_[rank].by_lane[lane].size()) { return false; }
            }
        }
        return true;
    }

    std::vector<RankOrder> ranks_;
    std::size_t states_ = 0;
};

constexpr auto mesh = sk::DeviceMesh<4>{}.grid();
constexpr auto groups = std::array{sk::describe_group<described::Row, sk::FullShard>("a", {}, mesh),
                                   sk::describe_group<described::Row, sk::FullShard>("b", {}, mesh)};

/// All valid schedules of at most six operations on the two groups, an optimizer's step not included. A prefix that
/// breaks a rule before its end is the beginning of none.
void add_valid(const sk::Schedule& prefix, std::vector<sk::Schedule>& valid) {
    const auto broken = sk::check(prefix, groups);
    for (const sk::Violation& violation : broken) {
        if (violation.operation < prefix.size()) { return; }
    }
    if (broken.empty()) { valid.push_back(prefix); }
    if (prefix.size() == 6) { return; }
    for (const Act act : {Act::gather, Act::use, Act::close, Act::zero, Act::add, Act::reduce}) {
        for (const std::uint32_t group : {0U, 1U}) {
            sk::Schedule longer = prefix;
            std::uint32_t microbatch = 0;
            for (const Op& op : prefix.ops()) { microbatch += op.act == Act::add && op.group == group ? 1U : 0U; }
            longer.add({act, group, act == Act::reduce && microbatch > 0 ? microbatch - 1 : microbatch});
            add_valid(longer, valid);
        }
    }
}
bool finds_deadlock(const std::vector<sk::Schedule>& of_ranks) {
    std::vector<RankOrder> ranks;
    for (const sk::Schedule& schedule : of_ranks) { ranks.emplace_back(schedule); }
    return Exploration(std::move(ranks)).deadlock().has_value();
}

}  // namespace

TEST_CASE("no order of ranks and lanes ends in a deadlock, for every schedule of up to six operations") {
    std::vector<sk::Schedule> valid;
    add_valid({}, valid);
    CHECK(valid.size() == 135);
    for (const sk::Schedule& schedule : valid) {
        for (const auto of_engine :
             {sk::CommunicationLanes::two, sk::CommunicationLanes::one, sk::CommunicationLanes::in_compute}) {
            for (const std::size_t ranks : {1U, 2U, 3U, 4U}) {
                const sk::Schedule step = sk::on_lanes(schedule, of_engine);
                if (finds_deadlock(std::vector<sk::Schedule>(ranks, step))) {
                    FAIL(sk::schedule_table(step, groups));
                }
            }
        }
    }
}

TEST_CASE("every schedule of up to six operations with two operations swapped is told from it before it runs") {
    std::vector<sk::Schedule> valid;
    add_valid({}, valid);
    std::size_t deadlocks = 0;
    for (const sk::Schedule& step : valid) {
        for (std::size_t i = 0; i + 1 < step.size(); ++i) {
            if (step[i] == step[i + 1]) { continue; }
            sk::Schedule swapped = step;
            swapped.move(i + 1, i);
            CHECK(sk::hash(swapped) != sk::hash(step));
            CHECK_FALSE(sk::diff(step, swapped, groups).changes.empty());
            if (sk::check(swapped, groups).empty()) { deadlocks += finds_deadlock({step, swapped, step}) ? 1U : 0U; }
        }
    }
    // Two collectives of one lane whose order is another on rank 1.
    CHECK(deadlocks > 0);
}

TEST_CASE("one rank that swaps two collectives of a lane is a deadlock, which is why schedules are compared") {
    sk::Schedule step;
    for (const std::uint32_t group : {0U, 1U}) { step.add({Act::gather, group}); }
    for (const std::uint32_t group : {0U, 1U}) {
        step.add({Act::use, group});
        step.add({Act::close, group});
    }
    REQUIRE(sk::check(step, groups).empty());
    sk::Schedule swapped = step;
    swapped.move(1, 0);
    REQUIRE(sk::check(swapped, groups).empty());
    CHECK_FALSE(finds_deadlock({step, step, step}));
    CHECK(finds_deadlock({step, swapped, step}));
    CHECK(sk::hash(step) != sk::hash(swapped));
}

}  // namespace explore_test
