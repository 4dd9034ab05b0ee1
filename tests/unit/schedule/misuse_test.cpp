// SPDX-License-Identifier: Apache-2.0
// What outlives a recorded or followed step, what is moved meanwhile, and schedules beside the wrong descriptions: an
// error at the user's line, or last words, and never memory that is gone.

#include <array>
#include <cstddef>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/schedule.hpp>
#include <shardkit/shardkit.hpp>

#include "unit/last_words.hpp"
#include "unit/thrown_message.hpp"

namespace misuse_test {

namespace {

namespace sk = shardkit;
struct Weight : sk::Param<"weight", float, 300> {};
using Layer = sk::Sharded<Weight, sk::FullShard>;

struct Trainer {
    explicit Trainer(sk::Rank& rank) {
        for (const char* path : {"layers.0", "layers.1", "layers.2"}) { layers.emplace_back(rank, path); }
        optimizer.emplace(sk::Model{layers}, sk::SgdOptions{});
    }
    auto model() { return sk::Model{layers}; }
    void forward() {
        for (Layer& layer : layers) { const auto window = layer.unshard(); }
    }
    void step() {
        sk::Accumulation accumulation{model()};
        forward();
        for (Layer& layer : layers) { accumulation.add_zero(layer); }
        optimizer->step(sk::reduce(std::move(accumulation), sk::mean));
    }

    std::vector<Layer> layers;
    std::optional<sk::SGD> optimizer;
};

template <class F>
void on_ranks(const F& f) {
    sk::threads::run(sk::DeviceMesh<2>{}, [&](auto& rank) {
        Trainer trainer(rank);
        f(trainer);
    });
}

}  // namespace

TEST_CASE("a step that outlives its recording is refused, and its end tells nobody") {
    on_ranks([](Trainer& trainer) {
        const auto model = trainer.model();
        std::optional<sk::Accumulation> kept;
        CHECK_USAGE_ERROR(sk::schedule::record(model,
                                               [&] {
                                                   kept.emplace(model);
                                                   trainer.forward();
                                               }),
                          "record: the step has not ended, expected its gradients to be consumed by an optimizer's "
                          "step, or dropped, before what is recorded returns");
        CHECK_USAGE_ERROR(sk::schedule::record(model, [] {}), "'layers.0': a step is under way; expected none");
        kept.reset();
        const sk::Schedule step = sk::schedule::record(model, [&] { trainer.step(); });
        const auto thrower = [&] {
            static_cast<void>(sk::schedule::record(model, [&] {
                kept.emplace(model);
                throw std::runtime_error("in the middle");
            }));
        };
        CHECK_THROWS_AS(thrower(), std::runtime_error);
        kept.reset();
        const auto following = sk::schedule::follow(model, step);
        trainer.step();
    });
}

TEST_CASE("groups that move while their step is recorded are told of by nobody afterwards") {
    on_ranks([](Trainer& trainer) {
        std::vector<Layer> elsewhere;
        static_cast<void>(sk::schedule::record(trainer.model(), [&] {
            trainer.step();
            elsewhere.push_back(std::move(trainer.layers[0]));
        }));
        const sk::Model model{elsewhere};
        const sk::Accumulation accumulation{model};
        CHECK_NOTHROW(static_cast<void>(elsewhere[0].unshard()));
    });
}

TEST_CASE("a Following that was moved from says so, with the user's line") {
    on_ranks([](Trainer& trainer) {
        const sk::Schedule step = sk::schedule::record(trainer.model(), [&] { trainer.step(); });
        auto first = sk::schedule::follow(trainer.model(), step);
        auto following = std::move(first);
        const std::string text = "a Following was used after it was moved from";
        CHECK_USAGE_ERROR(first.arena_bytes(), text);
        CHECK_USAGE_ERROR(first.schedules(), text);
        CHECK_USAGE_ERROR(first.choose(0), text);
        CHECK_USAGE_ERROR(first.measure(), text);
        CHECK_USAGE_ERROR(first.measured(), text);
        trainer.step();
        CHECK(following.choose(0) == 0);
        first = std::move(following);
        CHECK(first.schedules() == 1);
    });
}

TEST_CASE("a dry step refuses verbs of groups that it does not have") {
    constexpr auto mesh = sk::DeviceMesh<2>{}.grid();
    constexpr std::array groups{sk::describe_group<Weight, sk::FullShard>("a", {}, mesh)};
    sk::schedule::DryStep dry(groups);
    const std::string text = "DryStep: group 1 given, expected one below 1";
    CHECK_INVALID_ARGUMENT(dry.begin_unshard(1), text);
    CHECK_INVALID_ARGUMENT(dry.wait(1), text);
    CHECK_INVALID_ARGUMENT(dry.unshard(1), text);
    CHECK_INVALID_ARGUMENT(dry.reshard(1), text);
    CHECK_INVALID_ARGUMENT(dry.gradients(1), text);
    CHECK_INVALID_ARGUMENT(dry.add(1), text);
    CHECK_INVALID_ARGUMENT(dry.add_zero(1), text);
    CHECK_INVALID_ARGUMENT(dry.skip(1), text);
    CHECK_INVALID_ARGUMENT(dry.finish(1), text);
    CHECK_INVALID_ARGUMENT(dry.update(1), text);
}

TEST_CASE("a schedule that differs between ranks in lanes alone is refused with both lanes") {
    const auto differ = [] {
        on_ranks([](Trainer& trainer) {
            sk::Schedule step = sk::schedule::record(trainer.model(), [&] { trainer.step(); });
            if (trainer.layers[0].rank().rank() == 1) {
                step = sk::schedule::on_lanes(step, sk::schedule::CommunicationLanes::in_compute);
            }
            static_cast<void>(sk::schedule::follow(trainer.model(), step));
        });
    };
    const std::string message = thrown_message<sk::UsageError>(differ);
    CHECK(has(
        message,
        "follow: the schedules of the ranks differ in operation 0: rank 0 has gather of 'layers.0', microbatch 0, "
        "rank 1 has gather of 'layers.0', microbatch 0, lane compute"));
}

TEST_CASE("a schedule does not end under what shows its memory: windows and gradients of a step that was given up") {
    enum class Left { window, gradients, evaluation, nothing };
    using Window = decltype(std::declval<Layer&>().unshard());
    using Handle = decltype(std::declval<sk::Accumulation&>().gradients(std::declval<Layer&>()));
    const auto words_of = [](Left left) {
        return last_words([&] {
            on_ranks([&](Trainer& trainer) {
                const auto model = trainer.model();
                Layer& layer = trainer.layers[1];
                std::optional<Window> window;
                std::optional<Handle> handle;
                const auto step = [&](Left ends_with) {
                    sk::Accumulation accumulation{model};
                    window.emplace(layer.unshard());
                    if (ends_with == Left::window) { return; }
                    window.reset();
                    handle.emplace(accumulation.gradients(layer));
                    if (ends_with == Left::gradients) { return; }
                    accumulation.add(std::move(*handle));
                    handle.reset();
                };
                std::optional following(
                    sk::schedule::follow(model, sk::schedule::record(model, [&] { step(Left::nothing); })));
                step(left);
                if (left == Left::evaluation) { window.emplace(layer.unshard()); }  // in memory of its own
                following.reset();
            });
        });
    };
    const std::string text =
        "shardkit: a schedule ended while a window or gradients of 'layers.1' of a step that followed it live on, in "
        "its memory";
    CHECK(has(words_of(Left::window), text));
    CHECK(has(words_of(Left::gradients), text));
    CHECK(words_of(Left::evaluation) == "it lives");
    CHECK(words_of(Left::nothing) == "it lives");
}

}  // namespace misuse_test
