// SPDX-License-Identifier: Apache-2.0
// Every order in which ranks and lanes can run a schedule, for all valid schedules of a few operations: none of them
// waits for ever, and no buffer is written while another one in its bytes is in use. What an operation waits for in
// its group is written down here; what it waits for because buffers share bytes is what a cursor makes a stream wait
// for.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include <doctest/doctest.h>

#include "test_size.hpp"
#include "unit/schedule/described_models.hpp"

namespace explore_test {

namespace {

namespace sk = shardkit;
using sk::schedule::Act;
using sk::schedule::Op;

constexpr std::size_t lanes = 3;

bool communicates(const Op& op) { return !sk::schedule::is_of_program(op.act) || op.act == Act::norm; }

using Groups = std::span<const sk::planner::GroupDescription>;
constexpr auto none = static_cast<std::size_t>(-1);

/// One rank's operations by lane, and for each the operations of the rank that have to be over before it starts:
/// those that it waits for, and those that it must find ended because they used bytes of the buffer that it takes.
struct RankOrder {
    std::vector<Op> ops;
    std::array<std::vector<std::size_t>, lanes> by_lane;
    std::vector<std::vector<std::size_t>> behind;
    std::vector<std::vector<std::size_t>> clear_of;
    std::size_t shared_waits = 0;      // between buffers
    std::size_t shared_by_groups = 0;  // pairs of buffers of two groups that have bytes in common

    /// `left_out`: which of the waits between buffers there is not; `none`: all are there.
    RankOrder(const sk::Schedule& schedule, Groups groups, std::size_t left_out) {
        const auto list = schedule.ops();
        ops.assign(list.begin(), list.end());
        behind.resize(ops.size());
        clear_of.resize(ops.size());
        for (std::size_t i = 0; i < ops.size(); ++i) {
            by_lane[static_cast<std::size_t>(ops[i].lane)].push_back(i);
            const auto last = [&](Act act) {
                for (std::size_t k = i; k-- > 0;) {
                    if (ops[k].act == act && ops[k].group == ops[i].group) {
                        behind[i].push_back(k);
                        return;
                    }
                }
            };
            if (ops[i].act == Act::gather) { last(Act::update); }
            if (ops[i].act == Act::use) { last(Act::gather); }
            if (ops[i].act == Act::reduce) { last(Act::add); }
            if (ops[i].act == Act::all_reduce || ops[i].act == Act::update) { last(Act::reduce); }
            if (ops[i].act == Act::update) { last(Act::all_reduce); }
            for (std::size_t k = 0; k < i && ops[i].act == Act::norm; ++k) {
                if (ops[k].act == Act::reduce || ops[k].act == Act::all_reduce) { behind[i].push_back(k); }
            }
        }
        const auto slots = sk::detail::plan_slots(schedule, groups).slots;
        for (const auto& slot : slots) {
            for (const std::size_t before : slot.after) {
                // What the step before used is over: this one begins behind it.
                if (before == none || slots[before].end >= slot.begin) { continue; }
                if (shared_waits++ != left_out) { behind[slot.begin].push_back(slots[before].end); }
            }
            for (const auto& other : slots) {
                const bool shares =
                    slot.offset < other.offset + other.bytes && other.offset < slot.offset + slot.bytes;
                if (!shares || other.end >= slot.begin) { continue; }
                clear_of[slot.begin].push_back(other.end);
                shared_by_groups += slot.group != other.group ? 1U : 0U;
            }
        }
    }
};

/// How far each lane of each rank is.
using State = std::vector<std::array<std::uint8_t, lanes>>;

class Exploration {
  public:
    /// `sharded_over`: gathers and reductions are among so many ranks in a row, further sums among those at the same
    /// place in their rows.
    Exploration(std::vector<RankOrder> ranks, std::size_t sharded_over)
        : ranks_(std::move(ranks)), sharded_over_(sharded_over) {
        std::vector<State> waiting{State(ranks_.size())};
        std::set<State> seen{waiting.front()};
        while (!waiting.empty()) {
            const State now = waiting.back();
            waiting.pop_back();
            const std::vector<State> next = behind(now);
            if (next.empty() && !over(now)) { deadlock_ = true; }
            for (const State& each : next) {
                if (seen.insert(each).second) { waiting.push_back(each); }
            }
        }
    }
    /// There is a state in which nothing can go on although something is left.
    bool deadlock() const { return deadlock_; }
    /// An operation can start whose buffer is still in use as another one.
    bool race() const { return race_; }

  private:
    bool done(const State& now, std::size_t rank, std::size_t op) const {
        const auto lane = static_cast<std::size_t>(ranks_[rank].ops[op].lane);
        const auto& its_lane = ranks_[rank].by_lane[lane];
        return now[rank][lane] > static_cast<std::size_t>(std::ranges::find(its_lane, op) - its_lane.begin());
    }
    /// The operation at the head of a lane, where it may start.
    std::optional<Op> ready(const State& now, std::size_t rank, std::size_t lane) {
        const RankOrder& order = ranks_[rank];
        if (now[rank][lane] == order.by_lane[lane].size()) { return std::nullopt; }
        const std::size_t op = order.by_lane[lane][now[rank][lane]];
        const auto over = [&](std::size_t before) { return done(now, rank, before); };
        if (!std::ranges::all_of(order.behind[op], over)) { return std::nullopt; }
        race_ = race_ || !std::ranges::all_of(order.clear_of[op], over);
        return order.ops[op];
    }
    bool meet(const Op& op, std::size_t a, std::size_t b) const {
        if (op.act == Act::norm) { return true; }
        return op.act == Act::all_reduce ? a % sharded_over_ == b % sharded_over_
                                         : a / sharded_over_ == b / sharded_over_;
    }
    std::vector<State> behind(const State& now) {
        std::vector<State> next;
        for (std::size_t lane = 0; lane < lanes; ++lane) {
            for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
                const std::optional<Op> op = ready(now, rank, lane);
                if (!op) { continue; }
                // A collective starts when all of its ranks are there; the first of them says so.
                State then = now;
                bool starts = true;
                for (std::size_t other = 0; other < ranks_.size(); ++other) {
                    if (other != rank && !(communicates(*op) && meet(*op, rank, other))) { continue; }
                    starts = starts && other >= rank && ready(now, other, lane) == op;
                    ++then[other][lane];
                }
                if (starts) { next.push_back(std::move(then)); }
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
    std::size_t sharded_over_;
    bool deadlock_ = false;
    bool race_ = false;
};

constexpr auto mesh = sk::DeviceMesh<4>{}.grid();
constexpr auto groups = std::array{sk::describe_group<described::Row, sk::FullShard>("a", {}, mesh),
                                   sk::describe_group<described::Row, sk::FullShard>("b", {}, mesh)};

constexpr auto hybrid = std::array{sk::describe_group<described::Row, sk::HybridShard<2>>("a", {}, mesh)};

constexpr std::array without_updates{Act::gather, Act::use, Act::close, Act::zero, Act::add, Act::reduce};
constexpr std::array all_acts{Act::gather, Act::use,    Act::close,      Act::zero, Act::add,
                              Act::skip,   Act::reduce, Act::all_reduce, Act::norm, Act::update};

/// All valid schedules of at most so many operations. A prefix that breaks a rule before its end is the beginning of
/// none.
void add_valid(Groups of, std::span<const Act> acts, std::size_t most, const sk::Schedule& prefix,
               std::vector<sk::Schedule>& valid) {
    const auto broken = sk::schedule::check(prefix, of);
    for (const sk::schedule::Violation& violation : broken) {
        if (violation.operation < prefix.size()) { return; }
    }
    if (broken.empty()) { valid.push_back(prefix); }
    if (prefix.size() == most) { return; }
    for (const Act act : acts) {
        for (std::uint32_t group = 0; group < of.size(); ++group) {
            if (act == Act::norm && group > 0) { continue; }
            sk::Schedule longer = prefix;
            std::uint32_t microbatch = 0;
            for (const Op& op : prefix.ops()) { microbatch += op.act == Act::add && op.group == group ? 1U : 0U; }
            if (act == Act::norm || act == Act::update || act == Act::skip) { microbatch = 0; }
            if ((act == Act::reduce || act == Act::all_reduce) && microbatch > 0) { --microbatch; }
            longer.add({act, group, microbatch});
            add_valid(of, acts, most, longer, valid);
        }
    }
}
std::vector<sk::Schedule> valid_schedules(Groups of, std::span<const Act> acts, std::size_t most) {
    std::vector<sk::Schedule> valid;
    add_valid(of, acts, most, {}, valid);
    return valid;
}
std::size_t count(const sk::Schedule& schedule, Act act) {
    return static_cast<std::size_t>(std::ranges::count(schedule.ops(), act, &Op::act));
}
/// `sharded_over`: see Exploration; `none`: over all ranks.
Exploration explore(const std::vector<sk::Schedule>& of_ranks, Groups of, std::size_t sharded_over = none,
                    std::size_t left_out = none) {
    std::vector<RankOrder> ranks;
    for (const sk::Schedule& schedule : of_ranks) { ranks.emplace_back(schedule, of, left_out); }
    return {std::move(ranks), sharded_over};
}
bool finds_deadlock(const std::vector<sk::Schedule>& of_ranks) { return explore(of_ranks, groups).deadlock(); }

void check_explored(const sk::Schedule& schedule, Groups of, std::size_t ranks, std::size_t sharded_over = none) {
    for (const auto of_engine : described::every_lanes) {
        const sk::Schedule step = sk::schedule::on_lanes(schedule, of_engine);
        const Exploration found = explore(std::vector<sk::Schedule>(ranks, step), of, sharded_over);
        if (found.deadlock() || found.race()) { FAIL(sk::schedule::table(step, of)); }
    }
}

}  // namespace

TEST_CASE("no order of ranks and lanes ends in a deadlock, for every schedule of up to six operations") {
    const auto valid = valid_schedules(groups, without_updates, 6);
    CHECK(valid.size() == 135);
    for (const sk::Schedule& schedule : valid) {
        for (const std::size_t ranks : {1U, 2U, 3U, 4U}) {
            if (!test_size::reduced() || ranks < 4) { check_explored(schedule, groups, ranks); }
        }
    }
}

TEST_CASE(
    "nor does a step with sums over replicas, a norm and updates: up to six operations on four ranks, nine on two") {
    const auto valid = valid_schedules(hybrid, all_acts, 9);
    std::size_t whole_steps = 0;
    std::size_t on_four_ranks = 0;
    std::size_t number = 0;
    const auto chosen = [&] { return !test_size::reduced() || number++ % 3 == 0; };
    for (const sk::Schedule& schedule : valid) {
        if (chosen()) {
            for (const std::size_t sharded_over : {1U, 2U}) { check_explored(schedule, hybrid, 2, sharded_over); }
            if (schedule.size() <= 6) { check_explored(schedule, hybrid, 4, 2); }
        }
        const bool whole = count(schedule, Act::all_reduce) > 0 && count(schedule, Act::norm) > 0 &&
                           count(schedule, Act::update) > 0;
        whole_steps += whole && count(schedule, Act::gather) > 0 ? 1U : 0U;
        on_four_ranks += whole && schedule.size() <= 6 ? 1U : 0U;
    }
    CHECK(valid.size() == 1670);
    CHECK(whole_steps == 56);
    CHECK(on_four_ranks == 1);
    // Two groups, of which each has a norm and an update at the end.
    for (const sk::Schedule& schedule : valid_schedules(groups, all_acts, 6)) {
        if (count(schedule, Act::norm) + count(schedule, Act::update) > 0 && chosen()) {
            check_explored(schedule, groups, 4);
        }
    }
}

TEST_CASE(
    "groups whose buffers share bytes wait for each other: without any of these waits a buffer is overwritten") {
    constexpr auto of = std::array{sk::describe_group<described::Row, sk::FullShard>("a", {}, mesh),
                                   sk::describe_group<described::Matrix, sk::FullShard>("b", {}, mesh),
                                   sk::describe_group<described::Row, sk::FullShard>("c", {}, mesh)};
    std::size_t planted = 0;
    std::size_t needed = 0;
    for (const std::size_t depth : {0U, 1U, 2U}) {
        const sk::Schedule ahead = sk::schedule::prefetch(sk::schedule::layered_step(of), of, depth);
        for (const sk::Schedule& schedule : {ahead, sk::schedule::overlap_reductions(ahead, of)}) {
            check_explored(schedule, of, 2);
            const RankOrder order(schedule, of, none);
            const std::size_t waits = order.shared_waits;
            CHECK(order.shared_by_groups > 0);
            for (std::size_t wait = 0; wait < waits; ++wait) {
                ++planted;
                needed += explore({schedule}, of, none, wait).race() ? 1U : 0U;
            }
        }
    }
    // The others follow from waits that are left.
    CHECK(planted == 30);
    CHECK(needed == 16);
}

TEST_CASE("every schedule of up to six operations with two operations swapped is told from it before it runs") {
    const auto valid = valid_schedules(groups, without_updates, 6);
    std::size_t deadlocks = 0;
    for (const sk::Schedule& step : valid) {
        for (std::size_t i = 0; i + 1 < step.size(); ++i) {
            if (step[i] == step[i + 1]) { continue; }
            sk::Schedule swapped = step;
            swapped.move(i + 1, i);
            CHECK(sk::schedule::hash(swapped) != sk::schedule::hash(step));
            if (sk::schedule::check(swapped, groups).empty()) {
                deadlocks += finds_deadlock({step, swapped, step}) ? 1U : 0U;
            }
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
    REQUIRE(sk::schedule::check(step, groups).empty());
    sk::Schedule swapped = step;
    swapped.move(1, 0);
    REQUIRE(sk::schedule::check(swapped, groups).empty());
    CHECK_FALSE(finds_deadlock({step, step, step}));
    CHECK(finds_deadlock({step, swapped, step}));
    CHECK(sk::schedule::hash(step) != sk::schedule::hash(swapped));
}

TEST_CASE("one rank that sums over its replicas in another order, or takes no norm, is a deadlock") {
    constexpr auto two = std::array{hybrid[0], hybrid[0]};
    sk::Schedule step;
    for (const std::uint32_t group : {0U, 1U}) {
        for (const Act act : {Act::zero, Act::add, Act::reduce}) { step.add({act, group}); }
    }
    for (const std::uint32_t group : {0U, 1U}) { step.add({Act::all_reduce, group}); }
    step.add({Act::norm});
    REQUIRE(sk::schedule::check(step, two).empty());
    sk::Schedule swapped = step;
    swapped.move(7, 6);
    REQUIRE(sk::schedule::check(swapped, two).empty());
    sk::Schedule without = step;
    without.erase(8);
    REQUIRE(sk::schedule::check(without, two).empty());
    CHECK_FALSE(explore({step, step, step, step}, two, 2).deadlock());
    CHECK(explore({step, swapped, step, step}, two, 2).deadlock());
    CHECK_FALSE(explore({step, swapped, step, swapped}, two, 2).deadlock());  // those that meet agree
    CHECK(explore({step, without, step, step}, two, 2).deadlock());
}

}  // namespace explore_test
