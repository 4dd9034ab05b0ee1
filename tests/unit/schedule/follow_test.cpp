// SPDX-License-Identifier: Apache-2.0
// Steps that follow a schedule do what they do without one, bit for bit; a program that leaves it is refused on every
// rank.

#include <array>
#include <cmath>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "test_size.hpp"
#include "unit/schedule/scheduled_trainer.hpp"
#include "unit/thrown_message.hpp"

namespace follow_test {

namespace {

namespace sk = shardkit;
using scheduled::Groups;
using scheduled::Improve;
using scheduled::Planted;
using scheduled::Run;
using Float = sk::Precision<float>;
using Half = sk::Precision<sk::bf16>;  // reduced in fp32, with master weights
template <class Precision>
using Trainer = scheduled::Trainer<Precision>;
using Mesh = sk::DeviceMesh<sk::dynamic, sk::dynamic, sk::dynamic>;

/// f(rank) on every rank of a mesh.
template <class F>
void on(const Mesh& mesh, const F& f) {
    sk::threads::run(mesh, [&](sk::Rank& rank) { f(rank); });
}

template <class Precision>
std::vector<double> trained(const Mesh& mesh, const Run& run, Improve improve) {
    std::vector<double> values;
    on(mesh, [&](sk::Rank& rank) {
        Trainer<Precision> trainer(rank, run);
        if (improve == nullptr) {
            for (std::size_t s = 0; s < run.steps; ++s) { trainer.step(s); }
        } else {
            {
                const auto following = scheduled::follow_first_step(trainer, improve);
                for (std::size_t s = 1; s + 1 < run.steps; ++s) { trainer.step(s); }
            }
            trainer.step(run.steps - 1);
        }
        auto all = trainer.values();
        if (rank.rank() == 0) { values = std::move(all); }
    });
    return values;
}

const std::array<Improve, 5> improvements{[](const sk::Schedule& s, Groups) { return s; }, scheduled::gathers_ahead,
                                          scheduled::some_stay_gathered, scheduled::all_overlaps,
                                          [](const sk::Schedule& s, Groups g) {
                                              return sk::schedule::prefetch(
                                                  sk::schedule::keep_gathered(s, g, sk::ByteCount(1U << 30U)), g, 5);
                                          }};

/// The policies as values.
std::vector<sk::DynamicPolicy> policies() {
    return {sk::DynamicPolicy(sk::NoShard{}),          sk::DynamicPolicy(sk::ShardOptimizer{}),
            sk::DynamicPolicy(sk::ShardGradOp{}),      sk::DynamicPolicy(sk::FullShard{}),
            sk::DynamicPolicy(sk::HybridShard<2>{}),   sk::DynamicPolicy(sk::HybridOptimizer<2>{}),
            sk::DynamicPolicy(sk::SecondaryShard<2>{})};
}

/// What each rank throws; empty where it does not.
std::vector<std::string> thrown_by_ranks(std::size_t ranks, const std::function<void(sk::Rank&)>& f) {
    std::vector<std::string> thrown(ranks);
    try {
        on(Mesh(ranks, 1, 1), [&](sk::Rank& rank) {
            try {
                f(rank);
            } catch (const std::exception& error) {
                thrown[rank.rank()] = error.what();
                throw;
            }
        });
    } catch (const std::exception&) {}  // of the rank that failed first
    return thrown;
}
bool says(const std::string& message, const std::string& text) { return message.find(text) != std::string::npos; }

}  // namespace

TEST_CASE("a step that follows a schedule gives the bits of one that does not") {
    for (const sk::DynamicPolicy& policy : policies()) {
        CAPTURE(std::string(policy.name()));
        for (const std::size_t microbatches : {1U, 3U}) {
            if (test_size::reduced() && microbatches == 1) { continue; }
            const Run run{.policy = policy, .microbatches = microbatches};
            const Run every{.policy = policy, .microbatches = microbatches, .every_kind = true, .norm = false};
            const auto check = [&]<class Precision>(Precision, const Mesh& mesh, const Run& each) {
                const auto plain = trained<Precision>(mesh, each, nullptr);
                for (std::size_t i = 0; i < improvements.size(); ++i) {
                    CAPTURE(i);
                    CHECK(trained<Precision>(mesh, each, improvements[i]) == plain);
                }
            };
            check(Float{}, Mesh(4, 1, 1), run);
            check(Half{}, Mesh(2, 1, 2), every);
        }
    }
}

TEST_CASE("a schedule recorded on one rank is that of every rank, live and dry") {
    for (const sk::DynamicPolicy& policy : policies()) {
        CAPTURE(std::string(policy.name()));
        std::array<sk::Schedule, 8> recorded;
        std::array<sk::Schedule, 8> again;
        sk::Schedule dry;
        on(Mesh(2, 2, 2), [&](sk::Rank& rank) {
            Trainer<Float> trainer(rank, {.policy = policy, .microbatches = 2});
            recorded[rank.rank()] = sk::schedule::record(trainer.model(), [&] { trainer.step(0); });
            again[rank.rank()] =
                sk::schedule::record(trainer.model(), [&] { trainer.step(1); });  // nothing is new any more
            if (rank.rank() != 0) { return; }
            const auto groups = sk::describe_groups(trainer.model());
            sk::schedule::DryStep step(groups, 2);
            for (int microbatch = 0; microbatch < 2; ++microbatch) {
                for (const std::size_t g : {0U, 2U, 3U, 4U}) { step.unshard(g).reshard(g); }
                for (const std::size_t g : {4U, 3U, 2U, 0U}) { step.unshard(g).gradients(g).reshard(g).add(g); }
                step.add_zero(5).add_zero(6);
            }
            dry = step.reduce().global_norm().step().schedule();
        });
        for (const sk::Schedule& each : recorded) { CHECK(each == dry); }
        for (const sk::Schedule& each : again) { CHECK(each == dry); }
    }
}

TEST_CASE("a verb that is not the next operation is refused with both, and every rank fails") {
    struct Case {
        Planted planted;
        std::string text;
        std::size_t microbatches = 1;
    };
    for (const Case& each :
         {Case{Planted::late_gather,
               "the step leaves its schedule at operation 19: gradients of 'blocks.1' called, expected unshard of "
               "'blocks.1' in microbatch 0"},
          Case{Planted::early_close,
               "the step leaves its schedule at operation 21: reshard of 'blocks.1' called, expected gradients of "
               "'blocks.1' in microbatch 0"},
          Case{Planted::forgotten_add,
               "the step leaves its schedule at operation 23: unshard of 'blocks.0' called, expected add of "
               "'blocks.1' "
               "in microbatch 0"},
          Case{Planted::double_add,
               "the step leaves its schedule at operation 25: add_zero of 'blocks.1' called, expected unshard of "
               "'blocks.0' in microbatch 0"},
          Case{Planted::zero_in_window,
               "the step leaves its schedule at operation 22: add_zero of 'blocks.1' called, expected reshard of "
               "'blocks.1' in microbatch 0"},
          Case{Planted::late_skip,
               "the step leaves its schedule at operation 25: skip of 'blocks.1' called, expected unshard of "
               "'blocks.0' in microbatch 0"},
          Case{Planted::two_handles,
               "the step leaves its schedule at operation 23: gradients of 'blocks.1' called, expected add of "
               "'blocks.1' in microbatch 0"},
          Case{Planted::early_last,
               "the step leaves its schedule at operation 25: add of 'blocks.1' called for the last microbatch after "
               "1, "
               "expected 2; the next operation is unshard of 'blocks.0' in microbatch 0",
               2},
          Case{Planted::forgotten_group,
               "the step leaves its schedule at operation 36: add_zero of 'skipped' called, expected gradients of "
               "'unused' in microbatch 0"},
          Case{Planted::wrong_group,
               "the step leaves its schedule at operation 19: unshard of 'blocks.0' called, expected unshard of "
               "'blocks.1' in microbatch 0"},
          Case{Planted::other_order,
               "the step leaves its schedule at operation 13: unshard of 'blocks.1' called, expected unshard of "
               "'blocks.2' in microbatch 0"},
          Case{Planted::one_more,
               "the step leaves its schedule at operation 27: reshard of 'blocks.0' called, expected gradients of "
               "'blocks.0' in microbatch 0"},
          Case{Planted::no_norm, "step of 'table' called, expected global_norm"}}) {
        CAPTURE(each.text);
        for (const bool everyone : {true, false}) {
            const auto thrown = thrown_by_ranks(3, [&](sk::Rank& rank) {
                Trainer<Float> trainer(
                    rank, {.policy = sk::DynamicPolicy(sk::FullShard{}), .microbatches = each.microbatches});
                const auto groups = sk::describe_groups(trainer.model());
                const sk::Schedule step = sk::schedule::record(trainer.model(), [&] { trainer.step(0); });
                const auto following = sk::schedule::follow(trainer.model(), sk::schedule::prefetch(step, groups, 1));
                trainer.step(1);
                trainer.step(2, everyone || rank.rank() == 1 ? each.planted : Planted::nothing);
            });
            for (std::size_t r = 0; r < thrown.size(); ++r) {
                // A rank that keeps to the schedule is told which one did not, and what that one was told.
                CAPTURE(thrown[r]);
                CHECK(says(thrown[r], each.text));
                CHECK(says(thrown[r], "scheduled_trainer.hpp:"));
                if (!everyone) { CHECK(says(thrown[r], "rank 1 failed: the step leaves") == (r != 1)); }
            }
        }
    }
}

TEST_CASE("what ends a step is refused with the operation that comes before it") {
    on(Mesh(1, 1, 1), [](sk::Rank& rank) {
        Trainer<Float> trainer(rank, {.policy = sk::DynamicPolicy(sk::FullShard{})});
        auto& layer = trainer.table;
        const sk::Model model{layer};
        sk::SGD optimizer{model, {}};
        enum class Order { right, early_reduce, window_at_step, window_at_scaled_step };
        const auto step = [&](Order order) {
            sk::Accumulation accumulation{model};
            auto window = layer.unshard();
            const auto close = [&] { layer.reshard(std::move(window)); };
            if (order != Order::early_reduce) { accumulation.add_zero(layer); }
            if (order == Order::window_at_scaled_step) {
                sk::LossScale scale(rank, {});
                optimizer.step(sk::reduce(std::move(accumulation), sk::mean, scale));
                return;
            }
            auto reduced = sk::reduce(std::move(accumulation), sk::mean);
            if (order == Order::right) { close(); }
            optimizer.step(std::move(reduced));
        };
        const sk::Schedule recorded = sk::schedule::record(model, [&] { step(Order::right); });
        const auto following = sk::schedule::follow(model, recorded);
        step(Order::right);
        for (const auto& [order, text] :
             {std::pair<Order, std::string>{Order::early_reduce,
                                            "operation 2: reduce of 'table' called for the last microbatch after 0, "
                                            "expected 1; the next operation "
                                            "is gradients of 'table' in microbatch 0"},
              {Order::window_at_step,
               "operation 5: step of 'table' called, expected reshard of 'table' in microbatch 1"},
              {Order::window_at_scaled_step,
               "operation 5: global_norm called, expected reshard of 'table' in microbatch 1"}}) {
            const std::string thrown = thrown_message<sk::UsageError>([&, wrong = order] { step(wrong); });
            CAPTURE(thrown);
            CHECK(says(thrown, "the step leaves its schedule at " + text));
            CHECK(says(thrown, "follow_test.cpp:"));
        }
        step(Order::right);
    });
}

TEST_CASE("ranks with different schedules are refused before the first collective of a step") {
    const auto thrown = thrown_by_ranks(3, [](sk::Rank& rank) {
        Trainer<Float> trainer(rank, {.policy = sk::DynamicPolicy(sk::FullShard{})});
        const auto groups = sk::describe_groups(trainer.model());
        sk::Schedule step =
            sk::schedule::prefetch(sk::schedule::record(trainer.model(), [&] { trainer.step(0); }), groups, 2);
        if (rank.rank() == 2) { step.move(1, 0); }
        rank.traffic().clear();
        try {
            const auto following = sk::schedule::follow(trainer.model(), step);
        } catch (...) {
            CHECK(rank.traffic().total(sk::Verb::reduce_scatter).calls == 0);
            CHECK(rank.traffic().total(sk::Verb::all_gather).calls == 2);  // of what the ranks compared
            throw;
        }
    });
    for (const std::string& message : thrown) {
        CAPTURE(message);
        CHECK(says(message,
                   "follow: the schedules of the ranks differ in operation 0: rank 0 has gather of 'table', "
                   "microbatch 0, rank 2 has gather of 'blocks.0', microbatch 0"));
    }
}

TEST_CASE("ranks compare all schedules that they may follow in one collective") {
    on(Mesh(3, 1, 1), [](sk::Rank& rank) {
        Trainer<Float> trainer(rank, {.policy = sk::DynamicPolicy(sk::FullShard{})});
        const auto model = trainer.model();
        const auto groups = sk::describe_groups(model);
        const sk::Schedule step = sk::schedule::record(model, [&] { trainer.step(0); });
        std::vector<sk::Schedule> schedules;
        for (std::size_t depth = 0; depth < 4; ++depth) {
            schedules.push_back(sk::schedule::prefetch(step, groups, depth));
            rank.traffic().clear();
            const auto following = sk::schedule::follow(model, std::span<const sk::Schedule>(schedules));
            CHECK(rank.traffic().total(sk::Verb::all_gather).calls == 1);
            CHECK(rank.traffic().total(sk::Verb::reduce_scatter).calls == 0);
            CHECK(rank.traffic().total(sk::Verb::all_reduce).calls == 0);
        }
        {
            rank.traffic().clear();
            const auto following = sk::schedule::follow(model, step);
            CHECK(rank.traffic().total(sk::Verb::all_gather).calls == 1);
        }
        trainer.step(1);
    });
    // One more or less, another operation or another end in one of them: the same text on every rank.
    struct Case {
        std::string text;
        void (*change)(std::vector<sk::Schedule>&);
        std::size_t calls = 2;
    };
    for (const Case& each :
         {Case{"follow: rank 0 has 2 schedules to choose from, rank 2 has 3",
               [](std::vector<sk::Schedule>& all) { all.push_back(all.front()); }, 1},
          Case{"follow: rank 0 has 2 schedules to choose from, rank 2 has 1",
               [](std::vector<sk::Schedule>& all) { all.pop_back(); }, 1},
          Case{"follow: the schedules of the ranks differ in operation 1 of schedule 1: rank 0 has gather of "
               "'blocks.0', microbatch 0, rank 2 has use of 'table', microbatch 0",
               [](std::vector<sk::Schedule>& all) { all[1].move(3, 1); }},
          Case{
              "follow: the schedules of the ranks differ in operation 0 of schedule 0: rank 0 has gather of 'table', "
              "microbatch 0, rank 2 has the end",
              [](std::vector<sk::Schedule>& all) { all[0] = sk::Schedule(); }}}) {
        CAPTURE(each.text);
        const auto thrown = thrown_by_ranks(3, [&](sk::Rank& rank) {
            Trainer<Float> trainer(rank, {.policy = sk::DynamicPolicy(sk::FullShard{})});
            const auto model = trainer.model();
            const auto groups = sk::describe_groups(model);
            const sk::Schedule step = sk::schedule::record(model, [&] { trainer.step(0); });
            std::vector<sk::Schedule> schedules{step, sk::schedule::prefetch(step, groups, 3)};
            if (rank.rank() == 2) { each.change(schedules); }
            rank.traffic().clear();
            try {
                const auto following = sk::schedule::follow(model, std::span<const sk::Schedule>(schedules));
            } catch (...) {
                CHECK(rank.traffic().total(sk::Verb::all_gather).calls == each.calls);
                throw;
            }
        });
        for (const std::string& message : thrown) {
            CAPTURE(message);
            CHECK(says(message, each.text));
            CHECK(says(message, "follow_test.cpp:"));
        }
    }
}

TEST_CASE("after a refused or abandoned step the next one begins anew") {
    const Run run{.policy = sk::DynamicPolicy(sk::FullShard{}), .microbatches = 2};
    const auto values = [&](bool follows) {
        std::vector<double> all;
        on(Mesh(3, 1, 1), [&](sk::Rank& rank) {
            Trainer<Float> trainer(rank, run);
            const auto groups = sk::describe_groups(trainer.model());
            const sk::Schedule step = sk::schedule::record(trainer.model(), [&] { trainer.step(0); });
            std::optional<sk::schedule::Following> following;
            if (follows) {
                following.emplace(sk::schedule::follow(trainer.model(), sk::schedule::prefetch(step, groups, 3)));
            }
            if (follows) { CHECK_THROWS_AS(trainer.step(1, Planted::wrong_group), sk::UsageError); }
            { const sk::Accumulation given_up{trainer.model()}; }
            trainer.step(1);
            trainer.step(2);
            auto mine = trainer.values();
            if (rank.rank() == 0) { all = std::move(mine); }
        });
        return all;
    };
    CHECK(values(true) == values(false));
}

TEST_CASE("between steps windows open as without a schedule, and a step's addresses repeat") {
    on(Mesh(2, 1, 1), [](sk::Rank& rank) {
        Trainer<Float> trainer(rank, {.policy = sk::DynamicPolicy(sk::FullShard{}), .microbatches = 2});
        const auto groups = sk::describe_groups(trainer.model());
        const sk::Schedule step = sk::schedule::record(trainer.model(), [&] { trainer.step(0); });
        const double before = trainer.evaluate();
        const auto following = sk::schedule::follow(
            trainer.model(),
            sk::schedule::prefetch(sk::schedule::keep_gathered(step, groups, sk::schedule::peak(step, groups)),
                                   groups, 1));
        CHECK(trainer.evaluate() == before);
        const auto seen = [&](std::size_t number) {
            std::vector<const void*> addresses;
            trainer.step(number, Planted::nothing, [&](const void* address) { addresses.push_back(address); });
            return addresses;
        };
        const auto first = seen(1);
        CHECK(first.size() == 16);
        CHECK(trainer.evaluate() != before);
        CHECK(seen(2) == first);
        CHECK(seen(3) == first);
    });
}

TEST_CASE("reduce_last gives the bits of a policy that adds unreduced gradients") {
    sk::rules::PolicyValues unreduced = sk::rules::policy_values(sk::FullShard{}, 4);
    unreduced.name = "full_shard, unreduced";
    unreduced.accumulate = sk::Accumulate::unreduced;
    const Run expected{.policy = sk::DynamicPolicy(unreduced), .microbatches = 3, .steps = 3};
    const Run run{.policy = sk::DynamicPolicy(sk::FullShard{}), .microbatches = 3, .steps = 3};
    std::vector<double> values;
    on(Mesh(4, 1, 1), [&](sk::Rank& rank) {
        Trainer<Float> trainer(rank, run);
        const auto groups = sk::describe_groups(trainer.model());
        sk::Schedule step;
        {
            Trainer<Float> other(rank, run);
            step = sk::schedule::record(other.model(), [&] { other.step(0); });
        }
        const auto following = sk::schedule::follow(
            trainer.model(), sk::schedule::prefetch(sk::schedule::reduce_last(step, groups), groups));
        for (std::size_t s = 0; s < 3; ++s) { trainer.step(s); }
        auto mine = trainer.values();
        if (rank.rank() == 0) { values = std::move(mine); }
    });
    CHECK(values == trained<Float>(Mesh(4, 1, 1), expected, nullptr));
}

TEST_CASE("ranks agree on one of several schedules: fewer microbatches, and layers that are left out") {
    const auto values = [&](bool follows) {
        std::vector<double> all;
        on(Mesh(3, 1, 1), [&](sk::Rank& rank) {
            Trainer<Float> trainer(rank, {.policy = sk::DynamicPolicy(sk::FullShard{}), .microbatches = 3});
            const auto model = trainer.model();
            const auto groups = sk::describe_groups(model);
            const auto better = [&] {
                return sk::schedule::prefetch(sk::schedule::record(model, [&] { trainer.step(0); }), groups, 1);
            };
            std::vector<sk::Schedule> schedules{better()};
            trainer.set_microbatches(1);
            schedules.push_back(better());
            std::optional<sk::schedule::Following> following;
            if (follows) { following.emplace(sk::schedule::follow(model, std::span<const sk::Schedule>(schedules))); }
            for (const std::size_t number : {0U, 1U, 1U, 0U}) {
                // The data tells one rank only; the others do what it says.
                const std::size_t wish = rank.rank() == 1 ? number : 0;
                if (follows) { CHECK(following->choose(wish) == number); }
                trainer.set_microbatches(number == 0 ? 3 : 1);
                trainer.step(number);
            }
            if (follows) {
                CHECK(following->schedules() == 2);
                CHECK_THROWS_AS(following->choose(2), std::invalid_argument);
                trainer.set_microbatches(1);
                CHECK_THROWS_AS(trainer.step(1), sk::UsageError);  // the chosen one has three
                const auto inside = [&] {
                    const sk::Accumulation accumulation{model};
                    following->choose(0);
                };
                CHECK_THROWS_AS(inside(), sk::UsageError);
            }
            auto mine = trainer.values();
            if (rank.rank() == 0) { all = std::move(mine); }
        });
        return all;
    };
    CHECK(values(true) == values(false));
}

TEST_CASE("updates that stand apart are refused, with both of them") {
    on(Mesh(2, 1, 1), [](sk::Rank& rank) {
        Trainer<Float> trainer(rank, {.policy = sk::DynamicPolicy(sk::FullShard{}), .norm = false});
        const auto model = trainer.model();
        const auto groups = sk::describe_groups(model);
        const sk::Schedule step = sk::schedule::record(model, [&] { trainer.step(0); });
        sk::Schedule early = step;
        const std::size_t update = early.size() - 1;
        REQUIRE(early[update].act == sk::schedule::Act::update);
        early.move(update, sk::detail::behind_group(early, update, early[update].group));
        REQUIRE(early != step);
        REQUIRE(sk::schedule::check(early, groups).empty());
        const std::string thrown =
            thrown_message<std::invalid_argument>([&] { static_cast<void>(sk::schedule::follow(model, early)); });
        CHECK(says(thrown, "follow_test.cpp:"));
        CHECK(says(thrown, "stands behind operation "));
        CHECK(says(thrown, "(update of '"));
        CHECK(says(thrown, "expected the updates together and in the groups' order"));
        // Nothing is followed, and the step that it was made of can be.
        const auto following = sk::schedule::follow(model, step);
        trainer.step(1);
    });
}

TEST_CASE(
    "a group that is used forward only is skipped, and follows with the others, between steps that train it too") {
    const auto values = [](const sk::DynamicPolicy& policy, bool follows) {
        std::vector<double> all;
        on(Mesh(4, 1, 1), [&](sk::Rank& rank) {
            Trainer<Float> trainer(rank, {.policy = policy});
            const auto model = trainer.model();
            auto& block = trainer.blocks[1];
            double activation = 1;
            const auto step = [&](bool forward_only) {
                sk::Accumulation accumulation{model};
                if (forward_only) { accumulation.skip(block); }
                for (auto& layer : trainer.blocks) {
                    const auto window = layer.unshard();
                    for (const float value : window[scheduled::Weight<float>{}]) { activation += std::sin(value); }
                }
                trainer.for_each_layer([&](auto& layer) {
                    if ((forward_only && layer.path() == block.path()) || layer.path() == "frozen") { return; }
                    auto gradients = accumulation.gradients(layer);
                    for (auto& each : gradients.view(0)) { each += static_cast<float>(std::cos(activation)); }
                    accumulation.add(std::move(gradients));
                });
                trainer.optimizer->step(sk::reduce(std::move(accumulation), sk::mean));
            };
            const std::array recorded{sk::schedule::record(model, [&] { step(true); }),
                                      sk::schedule::record(model, [&] { step(false); })};
            std::size_t of_it = 0;
            for (const sk::schedule::Op& op : recorded[0].ops()) {
                if (op.group == 3 && op.act != sk::schedule::Act::norm) { ++of_it; }
            }
            CHECK(of_it == (policy.name() == sk::NoShard::name ? 3 : 4));  // gather, use, close, skip
            std::optional<sk::schedule::Following> following;
            if (follows) {
                const auto groups = sk::describe_groups(model);
                const auto better = [&](const sk::Schedule& s) {
                    return sk::schedule::gather_after_update(sk::schedule::prefetch(s, groups), groups);
                };
                following.emplace(sk::schedule::follow(model, std::array{better(recorded[0]), better(recorded[1])}));
            }
            // Also behind an update of it, whose gather has been started, or has not.
            for (const bool forward_only : {true, true, false, true, false, false, true, true}) {
                if (following) { following->choose(forward_only ? 0 : 1); }
                step(forward_only);
            }
            auto mine = trainer.values();
            mine.push_back(activation);
            if (rank.rank() == 0) { all = std::move(mine); }
        });
        return all;
    };
    for (const sk::DynamicPolicy& policy : policies()) {
        CAPTURE(std::string(policy.name()));
        CHECK(values(policy, true) == values(policy, false));
    }
}

TEST_CASE(
    "a window that is asked for early shows its parameters, also where another one of the group ended meanwhile") {
    enum class Way { no_schedule, recorded, released };
    const auto values = [](const sk::DynamicPolicy& policy, Way way) {
        std::vector<double> all;
        on(Mesh(4, 1, 1), [&](sk::Rank& rank) {
            Trainer<Float> trainer(rank, {.policy = policy});
            const auto model = trainer.model();
            auto& twice = trainer.blocks[1];
            double activation = static_cast<double>(rank.rank());
            const auto step = [&] {
                sk::Accumulation accumulation{model};
                const auto see = [&](auto window) {
                    for (const float value : window[scheduled::Weight<float>{}]) {
                        activation = std::sin(activation + value);
                    }
                };
                auto first = twice.begin_unshard();
                auto second = twice.begin_unshard();
                see(std::move(first).wait());
                // Gradients of the same size, which lie where the first window lay if that gave its memory back.
                const auto take = [&](auto& layer) {
                    auto gradients = accumulation.gradients(layer);
                    for (auto& each : gradients.view(0)) { each += static_cast<float>(std::cos(activation)); }
                    accumulation.add(std::move(gradients));
                };
                take(trainer.blocks[2]);
                see(twice.unshard());
                see(std::move(second).wait());
                trainer.for_each_layer([&](auto& layer) {
                    if (layer.path() != "blocks.2" && layer.path() != "frozen") { take(layer); }
                });
                trainer.optimizer->step(sk::reduce(std::move(accumulation), sk::mean));
            };
            sk::Schedule schedule = sk::schedule::record(model, step);
            const auto of_it = [&](std::size_t i, sk::schedule::Act act) {
                return schedule[i].act == act && schedule[i].group == 3;
            };
            std::vector<std::size_t> uses;
            std::size_t gathers = 0;
            for (std::size_t i = 0; i < schedule.size(); ++i) {
                if (of_it(i, sk::schedule::Act::use)) { uses.push_back(i); }
                gathers += of_it(i, sk::schedule::Act::gather) ? 1U : 0U;
            }
            REQUIRE(uses.size() == 3);
            CHECK(gathers == 1);  // as without a schedule: the window that was asked for keeps the copy
            if (way == Way::released) { schedule.insert(uses[1], {sk::schedule::Act::gather, 3, 0}); }
            std::optional<sk::schedule::Following> following;
            if (way != Way::no_schedule) { following.emplace(sk::schedule::follow(model, schedule)); }
            rank.traffic().clear();
            step();
            // Of the group alone.
            CHECK(rank.traffic().total(sk::Verb::all_gather).calls == (way == Way::released ? 2 : 1));
            step();
            following.reset();
            auto mine = trainer.values();
            mine.push_back(activation);
            if (rank.rank() == 0) { all = std::move(mine); }
        });
        return all;
    };
    for (const sk::DynamicPolicy& policy :
         {sk::DynamicPolicy(sk::FullShard{}), sk::DynamicPolicy(sk::HybridShard<2>{})}) {
        CAPTURE(std::string(policy.name()));
        const auto plain = values(policy, Way::no_schedule);
        CHECK(values(policy, Way::recorded) == plain);
        CHECK(values(policy, Way::released) == plain);
    }
}

TEST_CASE("a step that is forward only follows a schedule without updates, and one that goes on is refused") {
    on(Mesh(3, 1, 1), [](sk::Rank& rank) {
        for (const sk::DynamicPolicy& policy :
             {sk::DynamicPolicy(sk::FullShard{}), sk::DynamicPolicy(sk::ShardOptimizer{}),
              sk::DynamicPolicy(sk::ShardGradOp{})}) {
            CAPTURE(std::string(policy.name()));
            Trainer<Float> trainer(rank, {.policy = policy});
            trainer.step(0);
            const auto model = trainer.model();
            const auto groups = sk::describe_groups(model);
            const auto forward = [&] {
                const sk::Accumulation accumulation{model};
                return trainer.evaluate();
            };
            const double before = trainer.evaluate();
            const sk::Schedule step = sk::schedule::record(model, forward);
            // Gather, use and close, but for a gather of what is frozen and whole.
            const bool released = policy.name() == sk::FullShard::name;
            CHECK(step.size() == 3 * groups.size() - (released ? 0 : 1));
            sk::Schedule lost = step;
            lost.erase(0);
            CHECK(says(thrown_message<std::invalid_argument>([&] { sk::schedule::require_valid(lost, groups); }),
                       "operation 0 (use of 'table', microbatch 0) breaks gather_before_use of 'table'"));
            auto following = sk::schedule::follow(model, sk::schedule::prefetch(step, groups, 2));
            following.measure();
            for (int s = 0; s < 3; ++s) { CHECK(forward() == before); }
            // Copies that rest are current: what is gathered again is what the policy has released.
            CHECK((following.measured().communication > 0) >= released);
            const auto goes_on = [&] {
                sk::Accumulation accumulation{model};
                static_cast<void>(trainer.evaluate());
                static_cast<void>(accumulation.gradients(trainer.table));
            };
            CHECK(says(thrown_message<sk::UsageError>(goes_on),
                       "gradients of 'table' called, expected the end of the step"));
            CHECK(forward() == before);
        }
    });
}

TEST_CASE("an evaluation follows a schedule of its own beside that of the steps that train") {
    const std::array<sk::DynamicPolicy, 4> of{
        sk::DynamicPolicy(sk::FullShard{}), sk::DynamicPolicy(sk::HybridShard<2>{}),
        sk::DynamicPolicy(sk::ShardOptimizer{}), sk::DynamicPolicy(sk::ShardGradOp{})};
    enum class Way { no_evaluation, no_schedule, scheduled };
    const auto run = [](const sk::DynamicPolicy& policy, Improve improve, Way way) {
        std::vector<double> trained;
        std::vector<double> evaluated;
        on(Mesh(4, 1, 1), [&](sk::Rank& rank) {
            Trainer<Float> trainer(rank, {.policy = policy, .microbatches = 2});
            const auto model = trainer.model();
            const auto groups = sk::describe_groups(model);
            const auto evaluation = [&] {
                const sk::Accumulation accumulation{model};
                return trainer.evaluate();
            };
            const sk::Schedule train = improve(sk::schedule::record(model, [&] { trainer.step(0); }), groups);
            const sk::Schedule evaluate = sk::schedule::prefetch(sk::schedule::record(model, evaluation), groups, 2);
            std::optional<sk::schedule::Following> following;
            if (way == Way::scheduled) { following.emplace(sk::schedule::follow(model, {train, evaluate})); }
            // Copies are current, or not, where an evaluation begins: behind a step, and behind another evaluation.
            for (std::size_t s = 1; s < 4; ++s) {
                if (following) { CHECK(following->choose(0) == 0); }
                trainer.step(s);
                if (way == Way::no_evaluation) { continue; }
                if (following) { CHECK(following->choose(1) == 1); }
                for (int again = 0; again < 2; ++again) {
                    const double value = evaluation();
                    if (rank.rank() == 0) { evaluated.push_back(value); }
                }
            }
            following.reset();
            auto mine = trainer.values();
            if (rank.rank() == 0) { trained = std::move(mine); }
        });
        return std::pair(std::move(trained), std::move(evaluated));
    };
    for (const sk::DynamicPolicy& policy : of) {
        CAPTURE(std::string(policy.name()));
        for (const Improve improve : {improvements[0], improvements[3]}) {
            const auto plain = run(policy, improve, Way::no_schedule);
            const auto scheduled = run(policy, improve, Way::scheduled);
            REQUIRE(scheduled.second.size() == 6);
            CHECK(scheduled.second == plain.second);
            CHECK(scheduled.second[0] == scheduled.second[1]);
            CHECK(scheduled.second[0] != scheduled.second[2]);
            CHECK(scheduled.first == plain.first);
            CHECK(scheduled.first == run(policy, improve, Way::no_evaluation).first);
        }
    }
}

TEST_CASE("what cannot be followed or recorded is refused with its reason") {
    on(Mesh(2, 1, 1), [](sk::Rank& rank) {
        Trainer<Float> trainer(rank, {.policy = sk::DynamicPolicy(sk::FullShard{})});
        const auto model = trainer.model();
        const auto groups = sk::describe_groups(model);
        CHECK_USAGE_ERROR(sk::schedule::record(model, [] {}), "record: no step ran, expected one over this model");
        const sk::Schedule step = sk::schedule::record(model, [&] { trainer.step(0); });
        CHECK_THROWS_AS(sk::schedule::record(model,
                                             [&] {
                                                 trainer.step(0);
                                                 trainer.step(1);
                                             }),
                        sk::UsageError);
        // A step that is given up with its gradients is no schedule.
        CHECK_THROWS_AS(static_cast<void>(sk::schedule::record(model,
                                                               [&] {
                                                                   sk::Accumulation accumulation{model};
                                                                   const auto dropped =
                                                                       accumulation.gradients(trainer.table);
                                                               })),
                        std::invalid_argument);
        sk::Schedule broken = step;
        broken.erase(0);
        CHECK_THROWS_AS(static_cast<void>(sk::schedule::follow(model, broken)), std::invalid_argument);
        sk::Schedule apart = step;
        apart.move(apart.size() - 2, 0);
        CHECK_THROWS_AS(static_cast<void>(sk::schedule::follow(model, apart)), std::invalid_argument);
        {
            const auto following = sk::schedule::follow(model, step);
            CHECK_USAGE_ERROR(sk::schedule::follow(model, step),
                              "'table': a schedule is followed already, or a step recorded; expected one at a time");
            CHECK_USAGE_ERROR(sk::schedule::record(model, [&] { trainer.step(1); }),
                              "'table': a schedule is followed already, or a step recorded; expected one at a time");
            const auto window = trainer.blocks[0].unshard();
            CHECK_THROWS_AS(trainer.step(1), sk::UsageError);
            const sk::Model some{trainer.blocks};
            CHECK_THROWS_AS(static_cast<void>(sk::Accumulation{some}), sk::UsageError);
        }
        const auto inside = [&] {
            const sk::Accumulation accumulation{model};
            static_cast<void>(sk::schedule::follow(model, step));
        };
        CHECK_THROWS_AS(inside(), sk::UsageError);
        trainer.step(1);
    });
}

}  // namespace follow_test
