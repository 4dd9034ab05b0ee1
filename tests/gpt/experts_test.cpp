// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/threads/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/mesh/expert_mesh.hpp>

#include "../../examples/train_gpt/program/expert_layers.hpp"

using namespace train_gpt;

namespace experts_test {

namespace {

double noise(std::size_t i) { return std::sin(static_cast<double>(i * i + 3 * i) * 0.7) / 2; }

/// What a window or a gradient handle shows of a group.
template <class Group>
struct Tensors {
    std::array<std::vector<double>, Group::count> values;

    struct Tensor {
        double* first;
        double* data() const noexcept { return first; }
    };
    template <class P>
    Tensor operator[](P) const noexcept {
        return {const_cast<double*>(values[Group::template index<P>].data())};
    }
    static std::size_t sources() noexcept { return 1; }
    template <class P>
    Tensor of_source(std::size_t /*source*/, P parameter) const noexcept {
        return (*this)[parameter];
    }
};
template <class Group>
Tensors<Group> filled(const sk::Shapes<Group>& shapes, std::size_t seed) {
    Tensors<Group> made;
    for (std::size_t p = 0; p < Group::count; ++p) {
        made.values[p].resize(shapes[p].numel());
        for (std::size_t i = 0; i < made.values[p].size(); ++i) {
            made.values[p][i] = seed == 0 ? 0 : noise(seed + 100 * p + i);
        }
    }
    return made;
}

}  // namespace

TEST_SUITE("gpt.experts") {
    TEST_CASE("central differences agree with the backward pass of experts, their router and its auxiliary loss") {
        for (const std::size_t capacity : {0U, 3U}) {
            CAPTURE(capacity);
            sk::threads::run(sk::DeviceMesh<1>{}, [&](auto& rank) {
                ModelConfig config;
                config.width = 6;
                config.layers = 1;
                config.experts = 4;
                config.top = 2;
                config.capacity = capacity;
                constexpr std::size_t tokens = 7;
                constexpr double factor = 0.3;
                ExpertLayers<sk::EngineOf<decltype(rank)>, double> layer(rank, config, {}, tokens);
                auto router = filled(router_shapes<double>(config), 1);
                auto experts = filled(expert_shapes<double>(config), 1000);
                auto d_router = filled(router_shapes<double>(config), 0);
                auto d_experts = filled(expert_shapes<double>(config), 0);
                std::vector<double> x(tokens * config.width), d_x(x.size());
                for (std::size_t i = 0; i < x.size(); ++i) { x[i] = noise(5000 + i); }
                const auto loss = [&] {
                    std::vector<double> y = x;
                    layer.forward(0, tokens, router, experts, y.data());
                    double sum = factor * layer.router(0).auxiliary_loss();
                    for (std::size_t i = 0; i < y.size(); ++i) { sum += y[i] * noise(9000 + i); }
                    return sum;
                };
                const double aux = (loss(), layer.router(0).auxiliary_loss());
                CHECK(aux > 0.9);
                for (std::size_t i = 0; i < d_x.size(); ++i) { d_x[i] = noise(9000 + i); }
                layer.backward(0, factor, router, experts, d_router, d_experts, d_x.data());
                const auto chosen = layer.router(0).chosen();
                const auto check = [&](std::vector<double>& values, const std::vector<double>& gradient) {
                    double largest = 0;
                    for (const double g : gradient) { largest = std::max(largest, std::abs(g)); }
                    REQUIRE(largest > 0);
                    for (std::size_t i = 0; i < values.size(); ++i) {
                        constexpr double h = 1e-5;
                        const double kept = values[i];
                        values[i] = kept + h;
                        const double above = loss();
                        REQUIRE(layer.router(0).chosen() == chosen);
                        values[i] = kept - h;
                        const double below = loss();
                        values[i] = kept;
                        CHECK(std::abs((above - below) / (2 * h) - gradient[i]) <= 1e-7 * std::max(1.0, largest));
                    }
                };
                check(x, d_x);
                for (std::size_t p = 0; p < 3; ++p) { check(router.values[p], d_router.values[p]); }
                for (std::size_t p = 0; p < 2; ++p) { check(experts.values[p], d_experts.values[p]); }
            });
        }
    }

    TEST_CASE("rows of padding are zeros, whatever an earlier pass has left there") {
        sk::threads::run(sk::ExpertMesh<sk::DeviceMesh<2>, 2>{}, [&](auto& rank) {
            ModelConfig config;
            config.width = 6;
            config.layers = 1;
            config.experts = 4;
            config.top = 2;
            config.capacity = 5;  // of 14 choices of a rank some find no row, and some rows no choice
            constexpr std::size_t tokens = 7;
            const auto router = filled(router_shapes<double>(config), 1);
            const auto experts = filled(expert_shapes<double>(config), 1000);
            using Layers = ExpertLayers<sk::EngineOf<decltype(rank)>, double>;
            // What a pass makes: tokens, their gradients, and those of all parameters.
            const auto pass = [&](Layers& layers, double x_0) {
                auto d_router = filled(router_shapes<double>(config), 0);
                auto d_experts = filled(expert_shapes<double>(config), 0);
                std::vector<double> x(tokens * config.width), d_x(x.size());
                for (std::size_t i = 0; i < x.size(); ++i) {
                    x[i] = x_0 + noise(5000 + i + 100 * rank.rank());
                    d_x[i] = x_0 + noise(9000 + i);
                }
                layers.forward(0, tokens, router, experts, x.data());
                layers.backward(0, 0.3, router, experts, d_router, d_experts, d_x.data());
                x.insert(x.end(), d_x.begin(), d_x.end());
                for (const auto& values : d_router.values) { x.insert(x.end(), values.begin(), values.end()); }
                for (const auto& values : d_experts.values) { x.insert(x.end(), values.begin(), values.end()); }
                return x;
            };
            Layers used(rank, config, {}, tokens), fresh(rank, config, {}, tokens);
            CHECK(std::isnan(pass(used, NAN)[0]));
            const auto made = pass(used, 0);
            CHECK(std::none_of(made.begin(), made.end(), [](double value) { return std::isnan(value); }));
            CHECK(made == pass(fresh, 0));
        });
    }
}

}  // namespace experts_test
