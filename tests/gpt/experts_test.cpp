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

#include "../../examples/train_gpt/program/expert_layer.hpp"

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
                config.experts = 4;
                config.top = 2;
                config.capacity = capacity;
                constexpr std::size_t tokens = 7;
                constexpr double factor = 0.3;
                ExpertLayer<sk::EngineOf<decltype(rank)>, double> layer(rank, config);
                auto router = filled(router_shapes<double>(config), 1);
                auto experts = filled(expert_shapes<double>(config), 1000);
                auto d_router = filled(router_shapes<double>(config), 0);
                auto d_experts = filled(expert_shapes<double>(config), 0);
                std::vector<double> x(tokens * config.width), d_x(x.size());
                for (std::size_t i = 0; i < x.size(); ++i) { x[i] = noise(5000 + i); }
                const auto loss = [&] {
                    std::vector<double> y = x;
                    layer.forward(tokens, router, experts, y.data());
                    double sum = factor * layer.router().auxiliary_loss();
                    for (std::size_t i = 0; i < y.size(); ++i) { sum += y[i] * noise(9000 + i); }
                    return sum;
                };
                const double aux = (loss(), layer.router().auxiliary_loss());
                CHECK(aux > 0.9);
                for (std::size_t i = 0; i < d_x.size(); ++i) { d_x[i] = noise(9000 + i); }
                layer.backward(factor, router, experts, d_router, d_experts, d_x.data());
                const auto chosen = layer.router().chosen();
                const auto check = [&](std::vector<double>& values, const std::vector<double>& gradient) {
                    double largest = 0;
                    for (const double g : gradient) { largest = std::max(largest, std::abs(g)); }
                    REQUIRE(largest > 0);
                    for (std::size_t i = 0; i < values.size(); ++i) {
                        constexpr double h = 1e-5;
                        const double kept = values[i];
                        values[i] = kept + h;
                        const double above = loss();
                        REQUIRE(layer.router().chosen() == chosen);
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
}

}  // namespace experts_test
