// SPDX-License-Identifier: Apache-2.0
// The value of a step: against orders, bytes and seconds that are written down here, never against the library's own.

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "unit/schedule/described_models.hpp"
#include "unit/thrown_message.hpp"

namespace schedule_test {

namespace {

namespace sk = shardkit;
using sk::schedule::Act;
using sk::schedule::StepRule;

constexpr auto mesh = sk::DeviceMesh<4>{}.grid();
constexpr auto full = described::transformer<sk::FullShard>(mesh);
constexpr auto plain = [] { return sk::schedule::layered_step(full); };

// 64 x 48 floats and 100, each to 128 bytes, and the shards of 4 ranks to 128 bytes.
constexpr std::size_t block = std::size_t{64} * 48 * 4 + 512;
constexpr std::size_t table = std::size_t{200} * 48 * 4;
constexpr std::size_t head = 512;
constexpr std::size_t model = table + 3 * block + head;
// Shards of parameters, reduced gradients and two states; 1 + 2 x 4 + 2 x 8 doubles of a norm.
constexpr std::size_t norm_bytes = (71 + 2 * sk::detail::norm_slots) * 8;
constexpr std::size_t resting = 4 * model / 4 + norm_bytes;

// In a constant expression, to the byte: the embedding's parameters and gradients are held together.
static_assert(sk::schedule::check(plain(), full).empty());
static_assert(sk::schedule::arena_bytes(plain(), full) == sk::ByteCount(2 * table));
static_assert(sk::schedule::peak(plain(), full) == sk::ByteCount(resting + 2 * table));
static_assert(sk::schedule::peak(plain(), full, 0) == sk::ByteCount(resting - 2 * model / 4 + 2 * table));
// The embedding comes while block 0 and its gradients are still held: a table and two blocks, in the same memory.
static_assert(sk::schedule::arena_bytes(sk::schedule::prefetch(plain(), full), full) == sk::ByteCount(2 * table));
constexpr auto blocks = std::array{full[1], full[2], full[3]};
static_assert(sk::schedule::arena_bytes(sk::schedule::layered_step(blocks), blocks) == sk::ByteCount(2 * block));
static_assert(sk::schedule::arena_bytes(sk::schedule::prefetch(sk::schedule::layered_step(blocks), blocks), blocks) ==
              sk::ByteCount(3 * block));
static_assert(sk::schedule::hash(plain()) == sk::schedule::hash(plain()));
static_assert(sk::schedule::hash(plain()) != sk::schedule::hash(sk::schedule::prefetch(plain(), full)));

std::vector<std::string> said(const sk::Schedule& schedule, std::span<const sk::planner::GroupDescription> groups) {
    std::vector<std::string> lines;
    for (const sk::schedule::Violation& violation : sk::schedule::check(schedule, groups)) {
        lines.push_back(sk::schedule::describe(violation, schedule, groups));
    }
    return lines;
}
/// The rules that a schedule breaks.
std::set<StepRule> broken(const sk::Schedule& schedule, std::span<const sk::planner::GroupDescription> groups) {
    std::set<StepRule> rules;
    for (const sk::schedule::Violation& violation : sk::schedule::check(schedule, groups)) {
        rules.insert(violation.rule);
    }
    return rules;
}
std::size_t place(const sk::Schedule& schedule, Act act, std::uint32_t group, std::size_t from = 0) {
    for (std::size_t i = from; i < schedule.size(); ++i) {
        if (schedule[i].act == act && schedule[i].group == group) { return i; }
    }
    throw std::logic_error("no such operation");
}

/// A frozen group before two that train.
constexpr auto with_frozen = [] {
    auto groups = described::transformer<sk::FullShard>(mesh);
    groups[0].trainable = false;
    return groups;
}();

/// Two groups of which a rank receives 2048 bytes of 4096, in a second.
constexpr auto two_ranks = sk::DeviceMesh<2>{}.grid();
struct Kilo : sk::Param<"kilo", float, 1024> {};
constexpr auto pair = std::array{sk::describe_group<Kilo, sk::FullShard>("a", {}, two_ranks),
                                 sk::describe_group<Kilo, sk::FullShard>("b", {}, two_ranks)};
constexpr auto pair_seconds = std::array{sk::schedule::GroupSeconds{1, 2, 0}, sk::schedule::GroupSeconds{1, 2, 0}};
constexpr sk::schedule::StepTimes time(const sk::Schedule& schedule) {
    return sk::schedule::simulate(schedule, pair, two_ranks,
                                  {pair_seconds, {sk::planner::TimeModel::links({0, 2048})}});
}

}  // namespace

TEST_CASE("a schedule prints as a table") {
    constexpr auto two = std::array{full[1], full[4]};
    CHECK(sk::schedule::table(sk::schedule::layered_step(two), two) ==
          "     0  gather   gather       0     12.50 KiB  blocks.0\n"
          "     1  compute  use          0     12.50 KiB  blocks.0\n"
          "     2  compute  close        0     12.50 KiB  blocks.0\n"
          "     3  gather   gather       0         512 B  head\n"
          "     4  compute  use          0         512 B  head\n"
          "     5  compute  zero         0      1.00 KiB  head\n"
          "     6  compute  close        0      1.00 KiB  head\n"
          "     7  compute  add          0         512 B  head\n"
          "     8  reduce   reduce       0         512 B  head\n"
          "     9  gather   gather       0     12.50 KiB  blocks.0\n"
          "    10  compute  use          0     12.50 KiB  blocks.0\n"
          "    11  compute  zero         0     25.00 KiB  blocks.0\n"
          "    12  compute  close        0     25.00 KiB  blocks.0\n"
          "    13  compute  add          0     12.50 KiB  blocks.0\n"
          "    14  reduce   reduce       0     12.50 KiB  blocks.0\n"
          "    15  compute  norm         0           0 B  all groups\n"
          "    16  compute  update       0           0 B  blocks.0\n"
          "    17  compute  update       0           0 B  head\n"
          "  arena 25600 bytes, hash 5b329f4d39660cfc\n");
}

TEST_CASE("what communicates follows from the policy") {
    const auto acts = [](const auto& groups, std::size_t microbatches) {
        std::array<std::size_t, 10> count{};
        const sk::Schedule step = sk::schedule::layered_step(groups, {.microbatches = microbatches});
        for (const sk::schedule::Op& op : step.ops()) { ++count[static_cast<std::size_t>(op.act)]; }
        return std::array{count[static_cast<std::size_t>(Act::gather)], count[static_cast<std::size_t>(Act::reduce)],
                          count[static_cast<std::size_t>(Act::all_reduce)]};
    };
    using Counts = std::array<std::size_t, 3>;
    // Five groups, of which the last is gathered once a microbatch.
    CHECK(acts(described::transformer<sk::NoShard>(mesh), 3) == Counts{0, 5, 0});
    CHECK(acts(described::transformer<sk::ShardOptimizer>(mesh), 3) == Counts{5, 5, 0});
    CHECK(acts(described::transformer<sk::ShardGradOp>(mesh), 3) == Counts{5, 15, 0});
    CHECK(acts(described::transformer<sk::FullShard>(mesh), 3) == Counts{27, 15, 0});
    CHECK(acts(described::transformer<sk::HybridShard<2>>(mesh), 3) == Counts{27, 15, 5});
    CHECK(acts(with_frozen, 1) == Counts{8, 4, 0});  // the backward pass ends above it
    constexpr auto of_tp = described::transformer<sk::NoShard>(sk::DeviceMesh<2, 2>{}.grid());
    CHECK(acts(of_tp, 1) == Counts{0, 5, 0});  // nothing is split over tp: each rank has all of it
}

TEST_CASE("every rule finds the operation that breaks it, and names operation, group and rule") {
    const sk::Schedule good = plain();
    REQUIRE(said(good, full).empty());
    sk::Schedule bad = good;
    SUBCASE("a late gather") {
        bad.move(0, 1);
        CHECK(said(bad, full).front() ==
              "operation 0 (use of 'embedding', microbatch 0) breaks gather_before_use of 'embedding': expected a "
              "gather of the group between its last update or release and this use");
        CHECK(broken(bad, full) ==
              std::set{StepRule::gather_before_use, StepRule::gather_outside_windows, StepRule::gather_is_used});
    }
    SUBCASE("an early close") {
        bad.move(2, 1);
        CHECK(broken(bad, full).contains(StepRule::window_open_at_close));
    }
    SUBCASE("a window that stays open") {
        bad.erase(2);
        CHECK(broken(bad, full).contains(StepRule::gather_outside_windows));
    }
    SUBCASE("a window open at its update") {
        bad.move(place(bad, Act::close, 0, place(bad, Act::zero, 0)), bad.size() - 1);
        CHECK(broken(bad, full) == std::set{StepRule::windows_end_in_step});
    }
    SUBCASE("a gather for nothing") {
        bad.insert(0, {Act::gather, 1, 0});
        CHECK(broken(bad, full) == std::set{StepRule::gather_is_used});
    }
    SUBCASE("a forgotten add") {
        bad.erase(place(bad, Act::add, 2));
        CHECK(broken(bad, full) ==
              std::set{StepRule::add_before_reduce, StepRule::added_or_skipped, StepRule::reduced_before_read});
    }
    SUBCASE("a double add") {
        const std::size_t add = place(bad, Act::add, 2);
        bad.insert(add, bad[add]);
        CHECK(broken(bad, full) == std::set{StepRule::zero_before_add, StepRule::add_before_reduce});
    }
    SUBCASE("an add of the wrong group") {
        const std::size_t add = place(bad, Act::add, 2);
        bad.erase(add);
        bad.insert(add, {Act::add, 1, 0});
        CHECK(said(bad, full).front().starts_with("operation " + std::to_string(add) +
                                                  " (add of 'blocks.0', microbatch 0) breaks zero_before_add of "
                                                  "'blocks.0'"));
    }
    SUBCASE("gradients taken twice") {
        const std::size_t zero = place(bad, Act::zero, 2);
        bad.insert(zero, bad[zero]);
        CHECK(broken(bad, full) == std::set{StepRule::add_before_zero});
    }
    SUBCASE("microbatches in another order") {
        const std::size_t zero = place(bad, Act::zero, 2);
        bad.erase(zero);
        bad.insert(zero, {Act::zero, 2, 1});
        CHECK(broken(bad, full) == std::set{StepRule::microbatches_in_order});
    }
    SUBCASE("a reduction before its addend") {
        bad.move(place(bad, Act::reduce, 2), place(bad, Act::add, 2));
        CHECK(broken(bad, full) == std::set{StepRule::add_before_reduce, StepRule::reduced_before_read});
    }
    SUBCASE("a forgotten reduction") {
        bad.erase(place(bad, Act::reduce, 2));
        CHECK(broken(bad, full) == std::set{StepRule::reduced_before_read});
    }
    SUBCASE("a norm before all is reduced") {
        bad.move(place(bad, Act::norm, 0), place(bad, Act::reduce, 0));
        CHECK(broken(bad, full) == std::set{StepRule::reduced_before_read});
    }
    SUBCASE("a norm behind an update") {
        bad.move(place(bad, Act::norm, 0), bad.size() - 1);
        CHECK(broken(bad, full) == std::set{StepRule::norm_before_updates});
    }
    SUBCASE("an update twice, and one forgotten") {
        bad.add({Act::update, 1, 0});
        CHECK(broken(bad, full) == std::set{StepRule::update_once});
        bad = good;
        bad.erase(place(bad, Act::update, 1));
        CHECK(said(bad, full).front().starts_with("the end of the step breaks update_once of 'blocks.0'"));
    }
    SUBCASE("a group that there is not") {
        bad.add({Act::use, 7, 0});
        CHECK(said(bad, full).front().starts_with("operation " + std::to_string(good.size()) +
                                                  " (use of group 7, microbatch 0) breaks group_exists of group 7"));
    }
    SUBCASE("gradients of a frozen group") {
        CHECK(said(sk::schedule::layered_step(with_frozen), with_frozen).empty());
        CHECK(broken(good, with_frozen) == std::set{StepRule::gradients_of_trainable});
    }
    SUBCASE("a skipped group has no gradients and no update") {
        sk::schedule::DryStep step(full);
        for (std::size_t g = 0; g < 4; ++g) { step.add_zero(g); }
        sk::schedule::DryStep skipping = step;
        CHECK(said(skipping.skip(4).global_norm().step().schedule(), full).empty());
        CHECK(broken(step.global_norm().schedule(), full) == std::set{StepRule::added_or_skipped});
        sk::schedule::DryStep both(full);
        CHECK(broken(both.skip(0).gradients(0).add(0).schedule(), full).contains(StepRule::gradients_of_step));
    }
    SUBCASE("a gather of what is never sharded") {
        constexpr auto whole = described::transformer<sk::NoShard>(mesh);
        sk::Schedule step = sk::schedule::layered_step(whole);
        step.insert(0, {Act::gather, 0, 0});
        CHECK(broken(step, whole).contains(StepRule::gather_where_sharded));
    }
    SUBCASE("a forgotten sum over replicas") {
        constexpr auto hybrid = described::transformer<sk::HybridShard<2>>(mesh);
        sk::Schedule step = sk::schedule::layered_step(hybrid);
        REQUIRE(said(step, hybrid).empty());
        step.erase(place(step, Act::all_reduce, 1));
        CHECK(broken(step, hybrid) == std::set{StepRule::reduced_before_read});
    }
    SUBCASE("the first rule is thrown") {
        bad.move(0, 1);
        CHECK(thrown_message<std::invalid_argument>([&] {
                  sk::schedule::require_valid(bad, full);
              }).find("schedule: operation 0 (use of 'embedding', microbatch 0) breaks gather_before_use") !=
              std::string::npos);
    }
}

TEST_CASE("a step begins as the one before it ends") {
    constexpr auto groups = described::transformer<sk::ShardOptimizer>(mesh);
    const sk::Schedule behind = sk::schedule::gather_after_update(sk::schedule::layered_step(groups), groups);
    CHECK(said(behind, groups).empty());
    sk::Schedule lost = behind;
    lost.erase(lost.size() - 1);
    CHECK(
        said(lost, groups).front().starts_with("operation 8 (use of 'head', microbatch 0) breaks gather_before_use"));
}

TEST_CASE("seconds of a step by hand: gathers and reductions of one second") {
    constexpr auto step = [] { return sk::schedule::layered_step(pair, {.norms = 0}); };
    // gather a 0-1, forward 1-2, gather b into the same memory 2-3, forward and backward 3-6, beside its reduction
    // 6-7 gather a, backward 7-9, reduction 9-10.
    static_assert(time(step()).seconds == 10);
    static_assert(time(step()).compute == 6);
    static_assert(time(step()).communication == 5);
    static_assert(time(step()).exposed() == 4);
    static_assert(time(step()).ops[1] == sk::schedule::OpTime{1, 1});   // use a
    static_assert(time(step()).ops[3] == sk::schedule::OpTime{2, 3});   // gather b
    static_assert(time(step()).ops[8] == sk::schedule::OpTime{6, 7});   // reduce b
    static_assert(time(step()).ops[12] == sk::schedule::OpTime{7, 9});  // close a, behind its backward pass
    // b comes during a's forward pass, a again during b's: only the first gather and the last reduction are waited
    // for.
    static_assert(time(sk::schedule::prefetch(step(), pair)).seconds == 8);
    static_assert(time(sk::schedule::prefetch(step(), pair)).exposed() == 2);
    // Nothing overlaps where a collective runs when it is called.
    static_assert(time(sk::schedule::on_lanes(sk::schedule::prefetch(step(), pair),
                                              sk::schedule::CommunicationLanes::in_compute))
                      .seconds == 11);
    static_assert(
        time(sk::schedule::on_lanes(step(), sk::schedule::CommunicationLanes::in_compute)).exposed_share() == 1);
    // One lane: the second gather of a would wait for the reduction of b, were it not before it.
    static_assert(time(sk::schedule::on_lanes(step(), sk::schedule::CommunicationLanes::one)).seconds == 11);
    static_assert(
        time(sk::schedule::on_lanes(sk::schedule::prefetch(step(), pair), sk::schedule::CommunicationLanes::one))
            .seconds == 8);
    CHECK_THROWS_AS(static_cast<void>(sk::schedule::simulate(step(), pair, two_ranks, {})), std::invalid_argument);
}

TEST_CASE("costs that no machine has are refused by name") {
    const sk::Schedule step = sk::schedule::layered_step(pair);
    const auto said_of = [&](const std::array<sk::schedule::GroupSeconds, 2>& seconds,
                             const sk::planner::LinkModel& link, double norm) {
        return thrown_message<std::invalid_argument>([&] {
            static_cast<void>(sk::schedule::simulate(step, pair, two_ranks,
                                                     {seconds, {sk::planner::TimeModel::links(link)}, {}, norm}));
        });
    };
    constexpr double nan = std::numeric_limits<double>::quiet_NaN();
    constexpr double infinite = std::numeric_limits<double>::infinity();
    for (const double wrong : {-1.0, nan, infinite, -infinite}) {
        CAPTURE(wrong);
        for (const sk::schedule::GroupSeconds& group :
             {sk::schedule::GroupSeconds{wrong, 0, 0}, sk::schedule::GroupSeconds{0, wrong, 0},
              sk::schedule::GroupSeconds{0, 0, wrong}}) {
            CHECK(has(said_of({{{1, 2, 3}, group}}, {}, 0), " of group 1 takes "));
        }
        CHECK(has(said_of({}, {}, wrong), "simulate: the norm takes "));
        CHECK(has(said_of({}, {wrong, 1}, 0), "TimeModel: the link within nodes has latency "));
    }
    for (const double wrong : {0.0, -1.0, nan, -infinite}) {
        CAPTURE(wrong);
        CHECK(has(said_of({}, {0, wrong}, 0),
                  "B/s for all_gather, expected a finite latency >= 0 and a bandwidth > 0"));
    }
    CHECK(sk::schedule::simulate(step, pair, two_ranks, {std::array<sk::schedule::GroupSeconds, 2>{}}).seconds == 0);
}

TEST_CASE("a simulated step is a trace with a track for each lane") {
    auto named = pair;
    named[0].path = "a \"quoted\"\n\\";
    const sk::Schedule step = sk::schedule::layered_step(pair, {.norms = 0});
    const std::string trace = sk::schedule::trace(step, named, time(step));
    CHECK(
        trace.starts_with("{\"traceEvents\": [\n"
                          R"({"name": "thread_name", "ph": "M", "pid": 0, "tid": 0, "args": {"name": "compute"}},)"
                          "\n"));
    // Two passes of a, one of b with both, three gathers and two reductions take time.
    std::size_t slices = 0;
    for (std::size_t at = trace.find("\"X\""); at != std::string::npos; at = trace.find("\"X\"", at + 1)) {
        ++slices;
    }
    CHECK(slices == 8);
    CHECK(trace.find(R"({"name": "gather of 'b', microbatch 0", "ph": "X", "pid": 0, "tid": 1, "ts": 2000000.000, )"
                     R"("dur": 1000000.000},)") != std::string::npos);
    CHECK(
        trace.find(R"({"name": "close of 'a \"quoted\"\u000a\\', microbatch 0", "ph": "X", "pid": 0, "tid": 0, )") !=
        std::string::npos);
    CHECK(trace.ends_with("}\n]}\n"));
    CHECK_THROWS_AS(static_cast<void>(sk::schedule::trace(sk::Schedule{}, named, time(step))), std::invalid_argument);
}

TEST_CASE("buffers that exist at one time lie apart, and their addresses are the engine's") {
    for (const std::size_t microbatches : {1U, 3U}) {
        const auto check = [&](const auto& groups) {
            const sk::Schedule step = sk::schedule::prefetch(
                sk::schedule::reduce_last(sk::schedule::layered_step(groups, {.microbatches = microbatches}), groups),
                groups, 2);
            const sk::detail::SlotPlan plan = sk::detail::plan_slots(step, groups);
            std::size_t most = 0;
            for (std::size_t i = 0; i < step.size(); ++i) {
                std::size_t held = 0;
                for (const auto& slot : plan.slots) { held += slot.begin <= i && i <= slot.end ? slot.bytes : 0; }
                most = std::max(most, held);
            }
            CHECK(plan.arena_bytes >= most);
            CHECK(plan.arena_bytes <= most + most / 2);
            for (const auto& a : plan.slots) {
                CHECK(a.offset % 256 == 0);
                CHECK(a.offset + a.bytes <= plan.arena_bytes);
                for (const auto& b : plan.slots) {
                    const bool apart = a.offset + a.bytes <= b.offset || b.offset + b.bytes <= a.offset;
                    CHECK((&a == &b || a.end < b.begin || b.end < a.begin || apart));
                }
            }
        };
        check(described::transformer<sk::FullShard>(mesh));
        check(described::lopsided<sk::FullShard>(mesh));
        check(described::lopsided<sk::ShardGradOp>(mesh));
        check(described::single<sk::FullShard>(mesh));
    }
}

TEST_CASE("a buffer lies at the lowest place where it is alone among larger ones and earlier ones of its size") {
    using Slot = sk::detail::ScheduledSlot;
    std::mt19937 random(7);
    for (int round = 0; round < 400; ++round) {
        // Sizes that repeat, or do not; lives that nest, follow each other, or both.
        const std::size_t sizes = 1 + random() % 6;
        const std::size_t longest = 1 + random() % 40;
        std::vector<Slot> slots;
        std::size_t at = 0;
        for (std::size_t i = 0; i < 60; ++i, at += 1 + random() % 3) {
            slots.push_back({sk::detail::SlotUse::full_gradients, 0, at, at + random() % longest,
                             300 * (1 + random() % sizes) + 1});
        }
        const sk::detail::SlotPlan plan = sk::detail::place_slots(slots);
        REQUIRE(plan.slots.size() == slots.size());
        const auto free_for = [&](std::size_t number, std::size_t offset) {
            for (std::size_t o = 0; o < slots.size(); ++o) {
                const Slot& other = plan.slots[o];
                const Slot& slot = plan.slots[number];
                const bool first = other.bytes > slot.bytes || (other.bytes == slot.bytes && o < number);
                const bool beside = other.begin <= slot.end && slot.begin <= other.end;
                const bool shared = other.offset < offset + slot.bytes && offset < other.offset + other.bytes;
                if (first && beside && shared) { return false; }
            }
            return true;
        };
        std::size_t most = 0;
        for (std::size_t s = 0; s < slots.size(); ++s) {
            std::size_t lowest = 0;
            while (!free_for(s, lowest)) { lowest += 256; }
            CHECK(plan.slots[s].offset == lowest);
            most = std::max(most, lowest + slots[s].bytes);
        }
        CHECK(plan.arena_bytes == most);
    }
}

TEST_CASE("a buffer waits for the latest one in its bytes that each lane gave back, in this step or the one before") {
    for (const std::size_t microbatches : {1U, 3U}) {
        const auto check = [&](const auto& groups) {
            const sk::Schedule step =
                sk::schedule::prefetch(sk::schedule::layered_step(groups, {.microbatches = microbatches}), groups, 2);
            const sk::detail::SlotPlan plan = sk::detail::plan_slots(step, groups);
            for (const auto& slot : plan.slots) {
                for (const std::size_t lane : {0U, 1U}) {
                    // The end of the one that it waits for; of the step before, less a step.
                    const auto ended = [&](const auto& other) {
                        const auto end = static_cast<std::ptrdiff_t>(other.end);
                        return other.end < slot.begin ? end : end - static_cast<std::ptrdiff_t>(step.size());
                    };
                    std::optional<std::ptrdiff_t> latest;
                    for (const auto& other : plan.slots) {
                        const bool of_lane = (other.use == sk::detail::SlotUse::full_parameters) == (lane == 0);
                        const bool shared =
                            slot.offset < other.offset + other.bytes && other.offset < slot.offset + slot.bytes;
                        if (of_lane && shared && (!latest || ended(other) > *latest)) { latest = ended(other); }
                    }
                    REQUIRE((slot.after[lane] != sk::detail::ScheduledSlot::none) == latest.has_value());
                    if (latest) { CHECK(ended(plan.slots[slot.after[lane]]) == *latest); }
                }
            }
        };
        check(described::transformer<sk::FullShard>(mesh));
        check(described::lopsided<sk::FullShard>(mesh));
        check(described::lopsided<sk::ShardGradOp>(mesh));
    }
}

TEST_CASE("ten thousand operations are placed, kept gathered and simulated in seconds") {
    for (const auto& [layers, microbatches] : {std::pair<std::size_t, std::size_t>{100, 12}, {1200, 1}}) {
        std::vector<sk::planner::GroupDescription> groups{full[0]};
        for (std::size_t l = 0; l < layers; ++l) { groups.push_back(full[1]); }
        groups.push_back(full[4]);
        const sk::Schedule step = sk::schedule::layered_step(groups, {.microbatches = microbatches});
        REQUIRE(step.size() >= 10'000);
        const auto began = std::chrono::steady_clock::now();
        CHECK(sk::schedule::arena_bytes(step, groups) == sk::ByteCount(2 * table));
        // The blocks that fit beside one block and its gradients stay, those with the shortest pause.
        const sk::ByteCount limit = sk::schedule::peak(step, groups) + sk::ByteCount(20 * block);
        const sk::Schedule kept = sk::schedule::keep_gathered(step, groups, limit);
        CHECK(sk::schedule::peak(kept, groups) <= limit);
        const std::size_t fit = (2 * table + 20 * block) / block - 2;
        CHECK(step.size() - kept.size() >= fit * microbatches);
        CHECK(sk::schedule::check(kept, groups).empty());
        const sk::Schedule ahead = sk::schedule::prefetch(kept, groups, 4);
        CHECK(sk::schedule::peak(ahead, groups) > limit);
        const std::vector<sk::schedule::GroupSeconds> seconds(groups.size(), {1, 2, 0.1});
        const sk::schedule::StepCosts costs{seconds, {sk::planner::TimeModel::links({0, 1e5})}};
        CHECK(sk::schedule::simulate(kept, groups, mesh, costs).exposed() <=
              sk::schedule::simulate(step, groups, mesh, costs).exposed());
        // 0.5 s on one processor.
        CHECK(std::chrono::steady_clock::now() - began < std::chrono::seconds(60));
    }
}

TEST_CASE("simulate: updates of offloaded groups wait for the link to the host's memory") {
    struct Weight : sk::Param<"weight", float, 64, 64> {};
    const auto groups_with = [&](sk::Offload offload) {
        sk::ShardedOptions<sk::Params<Weight>, sk::FullShard> options;
        options.offload = offload;
        return std::array{sk::describe_group<Weight, sk::FullShard>("layers.0", {}, mesh, options),
                          sk::describe_group<Weight, sk::FullShard>("layers.1", {}, mesh, options)};
    };
    const std::array<sk::schedule::GroupSeconds, 2> seconds{{{1, 2, 3}, {1, 2, 3}}};
    sk::schedule::StepCosts costs{.groups = seconds};
    costs.links.host = {0, 1024};
    const auto times = [&](sk::Offload offload) {
        const auto groups = groups_with(offload);
        return sk::schedule::simulate(sk::schedule::layered_step(groups), groups, mesh, costs);
    };
    const sk::schedule::StepTimes none = times(sk::Offload::none);
    const sk::schedule::StepTimes states = times(sk::Offload::states);
    // Each rank's two fp32 states of 1,024 elements are a piece: 8 s to the device and 8 s back, for each group.
    CHECK(none.seconds == 2 * (1 + 2 + 3));
    CHECK(states.seconds == none.seconds + 2 * (8 + 8));
    CHECK(states.exposed() == 2 * (8 + 8));
    CHECK(states.communication == none.communication + 2 * (8 + 8));
    // Of updates on the host: 8 KiB of gradients and parameters there, and 4 KiB of parameters back.
    CHECK(times(sk::Offload::update).seconds == none.seconds + 2 * (8 + 4));
    costs.links.host = {-1, 1024};
    CHECK(has(thrown_message<std::invalid_argument>([&] { times(sk::Offload::states); }),
              "the link to the host's memory has latency -1 s"));
}

}  // namespace schedule_test
