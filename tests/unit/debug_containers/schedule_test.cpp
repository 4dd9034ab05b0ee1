// SPDX-License-Identifier: Apache-2.0
// Compiled with -D_GLIBCXX_DEBUG, whose vector is no literal type: every header compiles, and what is constexpr
// elsewhere gives the same at run time.
#include <shardkit/checkpoint.hpp>
#include <shardkit/schedule.hpp>
#include <shardkit/shardkit.hpp>

#include <vector>

#include <doctest/doctest.h>

namespace sk = shardkit;

namespace schedule_test {

struct Weight : sk::Param<"weight", float, 64> {};

TEST_CASE("with libstdc++'s debugging containers a step follows its schedule") {
    sk::threads::run(sk::DeviceMesh<2>{}, [](auto& rank) {
        using Layer = sk::Sharded<Weight, sk::FullShard, sk::EngineOf<decltype(rank)>>;
        std::vector<Layer> layers;
        for (const char* path : {"a", "b", "c"}) { layers.emplace_back(rank, path); }
        auto model = sk::groups(layers);
        const auto groups = sk::describe_groups(model);
        const sk::Schedule schedule = sk::prefetch(sk::layered_step(groups, {.norms = 0}), groups, 1);
        CHECK(sk::check(schedule, groups).empty());
        sk::SGD optimizer{model, {.learning_rate = 1}};
        const auto following = sk::follow(model, schedule);
        sk::Accumulation accumulation{model};
        for (std::size_t l = 0; l + 1 < layers.size(); ++l) { const auto window = layers[l].unshard(); }
        for (std::size_t l = layers.size(); l > 0; --l) {
            auto& layer = layers[l - 1];
            auto window = layer.unshard();
            auto gradients = accumulation.gradients(layer);
            gradients[Weight{}][5] = 1;
            layer.reshard(std::move(window));
            accumulation.add(std::move(gradients), sk::Microbatch::last);
        }
        optimizer.step(sk::reduce(std::move(accumulation), sk::mean));
    });
}

}  // namespace schedule_test
