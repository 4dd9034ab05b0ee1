// SPDX-License-Identifier: Apache-2.0
// What a pass may change and what not, for five policies, three models and links of every speed.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include "test_size.hpp"
#include "unit/schedule/described_models.hpp"
#include "unit/thrown_message.hpp"

namespace passes_test {

namespace {

namespace sk = shardkit;
using sk::schedule::Act;

constexpr auto mesh = sk::DeviceMesh<4>{}.grid();
using Groups = std::span<const sk::planner::GroupDescription>;
struct Rows : sk::Param<"rows", float, sk::dynamic, 16> {};

/// f(name, groups) for every policy and model.
template <class F>
void for_each_model(const F& f) {
    const auto with = [&](auto policy) {
        using Policy = decltype(policy);
        const std::string name(Policy::name);
        const auto transformer = described::transformer<Policy>(mesh);
        const auto lopsided = described::lopsided<Policy>(mesh);
        const auto single = described::single<Policy>(mesh);
        f(name + " transformer", Groups(transformer));
        f(name + " lopsided", Groups(lopsided));
        f(name + " single", Groups(single));
    };
    with(sk::NoShard{});
    with(sk::ShardOptimizer{});
    with(sk::ShardGradOp{});
    with(sk::FullShard{});
    with(sk::HybridShard<2>{});
    with(sk::HybridOptimizer<2>{});
    with(sk::SecondaryShard<2>{});
}

std::vector<sk::schedule::Op> program_of(const sk::Schedule& schedule) {
    std::vector<sk::schedule::Op> acts;
    for (const sk::schedule::Op& op : schedule.ops()) {
        if (sk::schedule::is_of_program(op.act)) { acts.push_back(op); }
    }
    return acts;
}
std::size_t count(const sk::Schedule& schedule, Act act) {
    return static_cast<std::size_t>(
        std::ranges::count_if(schedule.ops(), [&](const sk::schedule::Op& op) { return op.act == act; }));
}

struct Pass {
    std::string_view name;
    sk::Schedule (*run)(const sk::Schedule&, Groups);
    bool keeps_gathers;
    bool keeps_reductions;
    bool has_more_to_do = false;  // when it is run again
};

/// A millionth of a second for each element forward, two backward, a tenth in the update.
std::vector<sk::schedule::GroupSeconds> seconds_of(Groups groups) {
    std::vector<sk::schedule::GroupSeconds> seconds;
    for (const sk::planner::GroupDescription& group : groups) {
        const double each = static_cast<double>(group.numel) * 1e-6;
        seconds.push_back({each, 2 * each, each / 10});
    }
    return seconds;
}
constexpr std::array passes{
    Pass{"prefetch 1", [](const sk::Schedule& s, Groups g) { return sk::schedule::prefetch(s, g, 1); }, true, true},
    Pass{"prefetch 3", [](const sk::Schedule& s, Groups g) { return sk::schedule::prefetch(s, g, 3); }, true, true},
    Pass{"keep_gathered",
         [](const sk::Schedule& s, Groups g) {
             return sk::schedule::keep_gathered(s, g, sk::schedule::peak(s, g) + sk::ByteCount(30'000));
         },
         false, true, true},
    Pass{"keep_gathered, all",
         [](const sk::Schedule& s, Groups g) { return sk::schedule::keep_gathered(s, g, sk::ByteCount(1U << 30U)); },
         false, true},
    Pass{"gather_after_update",
         [](const sk::Schedule& s, Groups g) { return sk::schedule::gather_after_update(s, g); }, true, true},
    Pass{"reduce_last", [](const sk::Schedule& s, Groups g) { return sk::schedule::reduce_last(s, g); }, true, false},
    Pass{"overlap_reductions", [](const sk::Schedule& s, Groups g) { return sk::schedule::overlap_reductions(s, g); },
         true, true},
};

void check_pass(const Pass& pass, const sk::Schedule& before, const sk::Schedule& after, Groups groups) {
    const auto broken = sk::schedule::check(after, groups);
    if (!broken.empty()) { FAIL(sk::schedule::describe(broken.front(), after, groups)); }
    CHECK((count(after, Act::gather) == count(before, Act::gather)) >= pass.keeps_gathers);
    CHECK(count(after, Act::gather) <= count(before, Act::gather));
    CHECK((count(after, Act::reduce) == count(before, Act::reduce)) >= pass.keeps_reductions);
    CHECK(count(after, Act::reduce) <= count(before, Act::reduce));
    CHECK(count(after, Act::all_reduce) == count(before, Act::all_reduce));
    CHECK(after.size() + count(before, Act::gather) + count(before, Act::reduce) ==
          before.size() + count(after, Act::gather) + count(after, Act::reduce));
    CHECK(program_of(after) == program_of(before));
    if (!pass.has_more_to_do) { CHECK(pass.run(after, groups) == after); }
}

struct Link {
    double bandwidth, latency;
};
/// With every bandwidth each latency; in slow builds one of them.
std::vector<Link> links() {
    if (test_size::reduced()) { return {{1e5, 0}, {1e6, 1e-3}, {4e6, 0}, {1e8, 1e-3}}; }
    std::vector<Link> all;
    for (const double bandwidth : {1e5, 1e6, 4e6, 1e8}) {
        for (const double latency : {0.0, 1e-3}) { all.push_back({bandwidth, latency}); }
    }
    return all;
}

/// On each link and engine.
std::vector<sk::schedule::StepTimes> times_of(const sk::Schedule& schedule, Groups groups) {
    const auto seconds = seconds_of(groups);
    std::vector<sk::schedule::StepTimes> times;
    for (const auto lanes : described::every_lanes) {
        const sk::Schedule step = sk::schedule::on_lanes(schedule, lanes);
        for (const auto [bandwidth, latency] : links()) {
            const sk::schedule::StepCosts costs{seconds, {sk::planner::TimeModel::links({latency, bandwidth})}};
            times.push_back(sk::schedule::simulate(step, groups, mesh, costs));
        }
    }
    return times;
}

void check_times(const std::vector<sk::schedule::StepTimes>& before, const sk::Schedule& after, Groups groups) {
    const auto times = times_of(after, groups);
    for (std::size_t i = 0; i < times.size(); ++i) {
        CAPTURE(i);
        CHECK(times[i].exposed() <= before[i].exposed() * (1 + 1e-12) + 1e-12);
        CHECK(times[i].compute == doctest::Approx(before[i].compute).epsilon(1e-12));
    }
}

}  // namespace

TEST_CASE("a pass keeps the program and the rules, and lowers the exposed time or keeps it") {
    for_each_model([](const std::string& name, Groups groups) {
        for (const std::size_t microbatches : {1U, 3U}) {
            for (const std::size_t norms : {0U, 1U}) {
                const sk::Schedule plain = sk::schedule::layered_step(groups, {microbatches, norms});
                const auto of_plain = times_of(plain, groups);
                for (const Pass& pass : passes) {
                    CAPTURE(name);
                    CAPTURE(std::string(pass.name));
                    CAPTURE(microbatches);
                    CAPTURE(norms);
                    const sk::Schedule better = pass.run(plain, groups);
                    check_pass(pass, plain, better, groups);
                    check_times(of_plain, better, groups);
                }
            }
        }
    });
}

TEST_CASE("two passes, one after the other, do not make a rank wait longer than the plain step") {
    for_each_model([](const std::string& name, Groups groups) {
        CAPTURE(name);
        for (const std::size_t microbatches : {1U, 3U}) {
            const sk::Schedule plain = sk::schedule::layered_step(groups, {microbatches, 1});
            const auto of_plain = times_of(plain, groups);
            for (const Pass& first : passes) {
                const sk::Schedule better = first.run(plain, groups);
                for (const Pass& second : passes) {
                    CAPTURE(std::string(first.name));
                    CAPTURE(std::string(second.name));
                    check_times(of_plain, second.run(better, groups), groups);
                }
            }
        }
    });
}

TEST_CASE("the plan of a schedule is that of the step that it is: its peak, its gathers and reductions") {
    constexpr sk::engine::Traits engine{};
    for_each_model([&](const std::string& name, Groups groups) {
        CAPTURE(name);
        for (const std::size_t microbatches : {1U, 3U}) {
            const sk::Schedule step = sk::schedule::layered_step(groups, {.microbatches = microbatches});
            const sk::Plan planned =
                sk::schedule::plan(step, groups, mesh, {.optimizer_states = 1, .engine = engine});
            CHECK(planned.memory.total() == sk::schedule::peak(step, groups, 1));
            CHECK(planned.memory.arena == sk::schedule::arena_bytes(step, groups));
            // What the planner assumes of windows: two of each group, of the last one.
            std::vector<sk::planner::GroupDescription> assumed(groups.begin(), groups.end());
            assumed.back().windows_per_microbatch = 1;
            const sk::Plan guessed =
                sk::plan(assumed, mesh, {.microbatches = microbatches, .optimizer_states = 1, .engine = engine});
            CHECK(planned.numel == guessed.numel);
            CHECK(planned.traffic == guessed.traffic);
            const auto gathers = [&](const sk::Schedule& of) {
                return sk::schedule::plan(of, groups, mesh).traffic.total(sk::Verb::all_gather).calls;
            };
            // A shard that stays in its group is gathered across groups once more.
            const auto across = static_cast<std::size_t>(std::ranges::count_if(
                groups, [](const auto& group) { return group.trainable && group.pieces() > 1; }));
            CHECK(gathers(step) == count(step, Act::gather) + across);
            const sk::Schedule kept = sk::schedule::keep_gathered(step, groups, sk::ByteCount(1U << 30U));
            CHECK(gathers(kept) == count(kept, Act::gather) + across);
        }
    });
}

TEST_CASE("passes follow each other in any order") {
    std::mt19937 random(1);
    for_each_model([&](const std::string& name, Groups groups) {
        CAPTURE(name);
        const sk::Schedule plain = sk::schedule::layered_step(groups, {3, random() % 2});
        for (int round = 0; round < 40; ++round) {
            sk::Schedule step = plain;
            std::string order;
            for (int i = 0; i < 4; ++i) {
                const Pass& pass = passes[random() % passes.size()];
                order += std::string(pass.name) + ", ";
                step = pass.run(step, groups);
            }
            CAPTURE(order);
            const auto broken = sk::schedule::check(step, groups);
            if (!broken.empty()) { FAIL(sk::schedule::describe(broken.front(), step, groups)); }
        }
    });
}

TEST_CASE("prefetch moves each gather behind the use of the window before it") {
    constexpr auto groups = described::transformer<sk::FullShard>(mesh);
    const sk::Schedule step = sk::schedule::prefetch(sk::schedule::layered_step(groups), groups, 1);
    std::vector<std::size_t> behind;
    for (std::size_t i = 0; i < step.size(); ++i) {
        if (step[i].act == Act::gather) { behind.push_back(i > 0 && step[i - 1].act == Act::use ? 1 : 0); }
    }
    CHECK(behind == std::vector<std::size_t>{0, 1, 1, 1, 1, 1, 1, 1, 1});
    CHECK(sk::schedule::prefetch(sk::schedule::layered_step(groups), groups, 0) ==
          sk::schedule::layered_step(groups));
    // At a depth of two, two are under way when the first window opens.
    const sk::Schedule deeper = sk::schedule::prefetch(sk::schedule::layered_step(groups), groups, 2);
    CHECK((deeper[0].act == Act::gather && deeper[1].act == Act::gather && deeper[2].act == Act::use));
    CHECK((deeper[3].act == Act::gather && deeper[4].act == Act::close));
}

TEST_CASE("keep_gathered takes what memory there is, the last blocks first") {
    constexpr auto groups = described::transformer<sk::FullShard>(mesh);
    const sk::Schedule plain = sk::schedule::layered_step(groups);
    constexpr std::size_t block = std::size_t{64} * 48 * 4 + 512;
    constexpr std::size_t table = std::size_t{200} * 48 * 4;
    // The embedding's parameters and gradients are the most that is held: in their memory all blocks fit.
    const sk::Schedule first = sk::schedule::keep_gathered(plain, groups, sk::schedule::peak(plain, groups));
    CHECK(count(plain, Act::gather) - count(first, Act::gather) == 3);
    CHECK(sk::schedule::arena_bytes(first, groups) == sk::ByteCount(2 * table));
    const sk::Schedule all =
        sk::schedule::keep_gathered(plain, groups, sk::schedule::peak(plain, groups) + sk::ByteCount(3 * block));
    CHECK(count(all, Act::gather) == 5);
    CHECK(sk::schedule::keep_gathered(plain, groups, sk::ByteCount(1)) == plain);
}

TEST_CASE("keep_gathered leaves out as many gathers as one by one, where buffers of many sizes leave gaps") {
    std::mt19937 random(3);
    std::vector<sk::planner::GroupDescription> groups;
    for (int g = 0; g < 40; ++g) {
        groups.push_back(sk::describe_group<sk::Params<Rows>, sk::FullShard>(
            "rows", {sk::shape<Rows>(20 + random() % 200, 16)}, mesh));
    }
    const sk::Schedule plain = sk::schedule::layered_step(groups);
    const auto least = sk::schedule::peak(plain, groups).value;
    const auto most =
        sk::schedule::peak(sk::schedule::keep_gathered(plain, groups, sk::ByteCount(1U << 30U)), groups).value;
    std::size_t gathers = 0;
    std::size_t gathers_by_one = 0;
    for (std::size_t part = 1; part < 16; ++part) {
        CAPTURE(part);
        const sk::ByteCount limit(least + (most - least) * part / 16);
        const sk::Schedule kept = sk::schedule::keep_gathered(plain, groups, limit);
        CHECK(sk::schedule::peak(kept, groups) <= limit);
        // Tried one by one, those with the shortest pause first: the last groups of the forward pass.
        sk::Schedule by_one = plain;
        for (std::uint32_t g = 40; g-- > 0;) {
            sk::Schedule less = by_one;
            std::size_t at = less.size();
            while (at-- > 0 && (less[at].act != Act::gather || less[at].group != g)) {}
            if (g == 39 || at == 0) { continue; }  // its two passes share a window
            less.erase(at);
            if (sk::schedule::peak(less, groups) <= limit) { by_one = less; }
        }
        gathers += count(kept, Act::gather);
        gathers_by_one += count(by_one, Act::gather);
    }
    // Where another one came first, others fit.
    CHECK(gathers <= gathers_by_one + 8);
}

TEST_CASE("gather_after_update brings copies up to date in the order of the forward pass") {
    constexpr auto groups = described::transformer<sk::ShardOptimizer>(mesh);
    const sk::Schedule step = sk::schedule::gather_after_update(sk::schedule::layered_step(groups), groups);
    for (std::uint32_t g = 0; g < 5; ++g) {
        CHECK(step[step.size() - 5 + g] == sk::schedule::Op{Act::gather, g, 0});
        CHECK(step[step.size() - 10 + g] == sk::schedule::Op{Act::update, g, 0});
    }
    constexpr auto released = described::transformer<sk::FullShard>(mesh);
    CHECK(sk::schedule::gather_after_update(sk::schedule::layered_step(released), released) ==
          sk::schedule::layered_step(released));
}

TEST_CASE("reduce_last leaves one reduction of each group, and the gradients in their memory until then") {
    constexpr auto groups = described::transformer<sk::ShardGradOp>(mesh);
    const sk::Schedule step =
        sk::schedule::reduce_last(sk::schedule::layered_step(groups, {.microbatches = 3}), groups);
    CHECK(count(step, Act::reduce) == 5);
    for (const sk::schedule::Op& op : step.ops()) {
        if (op.act == Act::reduce) { CHECK(op.microbatch == 2); }
    }
    constexpr std::size_t block = std::size_t{64} * 48 * 4 + 512;
    CHECK(sk::schedule::arena_bytes(step, groups) == sk::ByteCount(std::size_t{200} * 48 * 4 + 3 * block + 512));
    CHECK(sk::schedule::reduce_last(sk::schedule::layered_step(groups), groups) ==
          sk::schedule::layered_step(groups));
}

TEST_CASE("overlap_reductions starts each reduction behind the next gradient buffer, which takes no other's memory") {
    constexpr auto groups = described::transformer<sk::FullShard>(mesh);
    const sk::Schedule plain = sk::schedule::layered_step(groups, {.microbatches = 2});
    const sk::Schedule step = sk::schedule::overlap_reductions(plain, groups);
    std::vector<std::uint32_t> reduced;
    for (std::size_t i = 1; i < step.size(); ++i) {
        if (step[i].act != Act::reduce) { continue; }
        reduced.push_back(step[i].group);
        // The pass ends with group 0: what comes next is another forward pass, or the norm.
        CHECK(step[i - 1].act == (step[i].group == 0 ? Act::add : Act::zero));
        if (step[i].group != 0) { CHECK(step[i - 1].group + 1 == step[i].group); }
    }
    CHECK(reduced == std::vector<std::uint32_t>{4, 3, 2, 1, 0, 4, 3, 2, 1, 0});
    CHECK(sk::schedule::peak(step, groups) > sk::schedule::peak(plain, groups));
    // A step whose every backward pass takes as long as a reduction: only the last two are waited for.
    const std::vector<sk::schedule::GroupSeconds> seconds(groups.size(), sk::schedule::GroupSeconds{0, 1, 0});
    const sk::schedule::StepCosts costs{seconds, {sk::planner::TimeModel::links({1, 1e30})}};
    const auto time = [&](const sk::Schedule& of) { return sk::schedule::simulate(of, groups, mesh, costs); };
    const sk::Schedule ahead = sk::schedule::prefetch(plain, groups, 1);
    CHECK(time(sk::schedule::overlap_reductions(ahead, groups)).exposed() < time(ahead).exposed());
    // A buffer that a rank does not lease, or a group without gradients, is no place to wait for.
    constexpr auto resting = described::transformer<sk::NoShard>(mesh);
    CHECK(sk::schedule::check(sk::schedule::overlap_reductions(sk::schedule::layered_step(resting), resting), resting)
              .empty());
}

TEST_CASE("what asks for the groups of a schedule refuses descriptions of fewer") {
    constexpr auto groups = described::transformer<sk::FullShard>(mesh);
    const auto fewer = Groups(groups).first(2);
    const sk::Schedule plain = sk::schedule::layered_step(groups, {.norms = 0});
    const std::vector<sk::schedule::GroupSeconds> seconds(fewer.size());
    const sk::schedule::StepCosts costs{seconds, {sk::planner::TimeModel::links({0, 1e6})}};
    std::size_t first = 0;
    while (plain[first].group < fewer.size()) { ++first; }
    const std::string expected = "schedule: operation " + std::to_string(first) +
                                 " (gather of group 2, microbatch 0), but 2 groups are described; expected "
                                 "descriptions of the model's groups, all";
    const auto refuses = [&](auto&& f) {
        const sk::SourceLocation here{__FILE__, 0};
        CHECK(thrown_message<std::invalid_argument>([&] { f(here); }) == text_at(expected, here));
    };
    refuses([&](auto where) { (void)sk::schedule::keep_gathered(plain, fewer, sk::ByteCount(1U << 20U), 2, where); });
    refuses([&](auto where) { (void)sk::schedule::gather_after_update(plain, fewer, where); });
    refuses([&](auto where) { (void)sk::schedule::arena_bytes(plain, fewer, where); });
    refuses([&](auto where) { (void)sk::schedule::peak(plain, fewer, 2, where); });
    refuses([&](auto where) { (void)sk::schedule::simulate(plain, fewer, mesh, costs, where); });
    refuses([&](auto where) { (void)sk::schedule::plan(plain, fewer, mesh, {}, where); });
}

}  // namespace passes_test
