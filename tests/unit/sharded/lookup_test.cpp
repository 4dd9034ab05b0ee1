// SPDX-License-Identifier: Apache-2.0
// What is looked up by name, or done for one tensor after the other, costs the same for the last of many as for the
// first.
#include <shardkit/sharded/sharded.hpp>

#include <algorithm>
#include <cstddef>
#include <ctime>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/self/run.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/optim/sgd.hpp>
#include <shardkit/param/tensor_list.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/sharded/torn_values.hpp>
#include <shardkit/step/accumulation.hpp>

#include "unit/thrown_message.hpp"

namespace lookup_test {

namespace {

namespace sk = shardkit;

/// The processor's time for it, in seconds: what else runs on the machine takes the rest.
double seconds(const std::function<void()>& work) {
    const std::clock_t begin = std::clock();
    work();
    return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
}
/// Whether four times as much takes far less than sixteen times as long, which it does in each of many rounds where
/// it is quadratic. `work(n)` takes milliseconds.
void check_linear(const std::function<void(std::size_t)>& work, std::size_t few) {
    double one = 1e9;
    double four = 1e9;
    for (int round = 0; round < 40 && (round < 3 || four >= 9 * one); ++round) {
        one = std::min(one, seconds([&] { work(few); }));
        four = std::min(four, seconds([&] { work(4 * few); }));
    }
    CAPTURE(one);
    CAPTURE(four);
    CHECK(four < 9 * one);
}
std::vector<sk::NamedTensor> tensors(std::size_t count) {
    std::vector<sk::NamedTensor> list;
    for (std::size_t i = 0; i < count; ++i) {
        list.push_back({"tensors.of.one.group." + std::to_string(i) + ".weight", {2}});
    }
    return list;
}

}  // namespace

TEST_CASE("a tensor by name: the last of many takes as long as the first") {
    sk::self::run(sk::DeviceMesh<1>{}, [](auto& rank) {
        const auto list = tensors(20000);
        sk::Sharded<sk::TensorList<float>, sk::FullShard> layer{rank, "layer", sk::TensorList<float>(list)};
        const std::vector<float> values{1, 2};
        sk::Model model{layer};
        const auto window = layer.unshard();
        sk::Accumulation accumulation{model};
        auto gradients = accumulation.gradients(layer);
        const auto check = [&](const auto& look_up) {
            const double first = seconds([&] {
                for (int i = 0; i < 300; ++i) { look_up(list.front().name()); }
            });
            const double last = seconds([&] {
                for (int i = 0; i < 300; ++i) { look_up(list.back().name()); }
            });
            CAPTURE(first);
            CAPTURE(last);
            CHECK(last < 20 * first);
        };
        check([&](const std::string& name) { CHECK(layer.number_of(name) < list.size()); });
        check([&](const std::string& name) { CHECK(window.view(name).size() == 2); });
        check([&](const std::string& name) { CHECK(gradients.view(name).size() == 2); });
        for (std::size_t i = 0; i < list.size(); i += 97) { CHECK(layer.number_of(list[i].name()) == i); }
        CHECK(has(thrown_message<std::invalid_argument>([&] { layer.number_of("tensors.of"); }),
                  "no parameter is named 'tensors.of', expected one of 'tensors.of.one.group.0.weight', "));
        accumulation.add(std::move(gradients));
    });
}

TEST_CASE("a list of many tensors is checked, one of a name that is there refused with both") {
    check_linear([](std::size_t count) { sk::TensorList<float>(tensors(count)).check("layer"); }, 4000);
    auto list = tensors(10);
    list.push_back(list[3]);
    list.push_back(list[1]);
    CHECK(has(thrown_message<std::invalid_argument>([&] { sk::TensorList<float>(list).check("layer"); }),
              "tensors 3 and 10 have the name 'tensors.of.one.group.3.weight'"));
}

TEST_CASE("what a load marks as half written is listed one after the other") {
    check_linear(
        [](std::size_t count) {
            sk::detail::TornValues torn;
            for (const char* kind : {"parameter", "exp_avg", "exp_avg_sq"}) {
                for (std::size_t p = count; p > 0; --p) {
                    torn.begin(p - 1, kind, "load", sk::SourceLocation::current());
                }
            }
            for (std::size_t p = 0; p < count; ++p) {
                for (const char* kind : {"parameter", "exp_avg", "exp_avg_sq"}) { torn.end(p, kind); }
            }
            CHECK(torn.empty());
        },
        10000);
}

TEST_CASE("how often a group was updated: the last of many takes as long as the first") {
    sk::self::run(sk::DeviceMesh<1>{}, [](auto& rank) {
        using Layer = sk::Sharded<sk::TensorList<float>, sk::FullShard>;
        std::vector<Layer> layers;
        for (std::size_t i = 0; i < 3000; ++i) {
            layers.emplace_back(rank, "layers." + std::to_string(i), sk::TensorList<float>{{"w", {2}}});
        }
        sk::Model model{layers};
        const sk::SGD optimizer{model};
        const double one = seconds([&] {
            for (int i = 0; i < 300; ++i) { CHECK(sk::detail::rank_of(model, {}).rank() == 0); }
        });
        CAPTURE(one);
        const double first = seconds([&] {
            for (int i = 0; i < 300; ++i) { CHECK(optimizer.steps(layers.front()) == 0); }
        });
        // A walk over all groups, as often.
        CHECK(first < one);
    });
}

}  // namespace lookup_test
