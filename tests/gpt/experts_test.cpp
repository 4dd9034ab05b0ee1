// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/threads/run.hpp>
#include <shardkit/expert_parallel.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/mesh/expert_mesh.hpp>

#include "../../examples/train_gpt/model/host_place.hpp"
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

/// The Switch Transformer's, of so many tokens.
double auxiliary_loss(const Choices<double>& of, const ModelConfig& config, std::size_t tokens) {
    std::vector<double> share(config.experts), mean(config.experts);
    for (std::size_t c = 0; c < tokens * config.top; ++c) { share[of.chosen[c]] += 1; }
    for (std::size_t i = 0; i < tokens * config.experts; ++i) { mean[i % config.experts] += of.probabilities[i]; }
    double sum = 0;
    for (std::size_t e = 0; e < config.experts; ++e) { sum += share[e] * mean[e]; }
    return sum * static_cast<double>(config.experts) / static_cast<double>(tokens * config.top * tokens);
}

/// Loops of the host over as many parts of the rows as on a GPU, and one column at a time.
struct InParts : HostPlace {
    static constexpr std::size_t column_parts = DeviceLayout::column_parts;

    template <class Work>
    static void columns(std::size_t n, Work work) {
        for (std::size_t part = column_parts; part > 0; --part) {
            for (std::size_t c = 0; c < n; ++c) { work(Columns<1>{c}, part - 1); }
        }
    }
};

/// Chooses experts, and checks that they have the largest logits, and the rows that an Assignment gives them.
template <class Place>
void check_choices(std::size_t capacity) {
    constexpr std::size_t tokens = 150, experts = 40, top = 3;
    std::vector<double> logits(tokens * experts);
    for (std::size_t i = 0; i < logits.size(); ++i) { logits[i] = std::round(8 * noise(i)) / 4; }  // some are equal
    const std::size_t rows = capacity > 0 ? experts * capacity : tokens * top;
    Arena counter;
    Choices<double>::take(counter, tokens, experts, top, rows);
    std::vector<std::byte> memory(counter.used(), std::byte{0x55});
    Arena arena(memory.data(), memory.size());
    const auto choices = Choices<double>::take(arena, tokens, experts, top, rows);
    std::vector<std::uint64_t> counts(Place::column_parts * experts);
    choose_experts(tokens, experts, top, capacity, logits.data(), choices, counts.data(), Place{});

    const std::vector<std::uint32_t> chosen(choices.chosen, choices.chosen + tokens * top);
    for (std::size_t t = 0; t < tokens; ++t) {
        std::vector<std::uint32_t> order(experts);
        std::iota(order.begin(), order.end(), 0U);
        std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
            return logits[t * experts + a] > logits[t * experts + b];
        });
        CHECK(std::equal(order.begin(), order.begin() + top, chosen.begin() + static_cast<std::ptrdiff_t>(t * top)));
    }
    for (std::size_t e = 0; e < experts; ++e) {
        CHECK(choices.counts[e] == static_cast<std::uint64_t>(std::count(chosen.begin(), chosen.end(), e)));
    }
    sk::ep::Assignment expected(experts, capacity);
    expected.assign(chosen);
    CHECK((expected.dropped() > 0) == (capacity > 0));
    CHECK(std::equal(expected.row_of().begin(), expected.row_of().end(), choices.row_of));
    REQUIRE(expected.choice_of().size() == rows);
    CHECK(std::equal(expected.choice_of().begin(), expected.choice_of().end(), choices.choice_of));
}

}  // namespace

TEST_SUITE("gpt.experts") {
    TEST_CASE(
        "choices are those with the largest logits and get their rows in order, counted in one part or in many") {
        for (const std::size_t capacity : {0U, 12U}) {
            check_choices<HostPlace>(capacity);
            check_choices<InParts>(capacity);
        }
    }

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
                ExpertLayers<double> layer(rank, config, {}, tokens);
                auto router = filled(router_shapes<double>(config), 1);
                auto experts = filled(expert_shapes<double>(config), 1000);
                auto d_router = filled(router_shapes<double>(config), 0);
                auto d_experts = filled(expert_shapes<double>(config), 0);
                std::vector<double> x(tokens * config.width), d_x(x.size());
                for (std::size_t i = 0; i < x.size(); ++i) { x[i] = noise(5000 + i); }
                const auto loss = [&] {
                    std::vector<double> y = x;
                    layer.forward(0, tokens, router, experts, y.data());
                    double sum = factor * auxiliary_loss(layer.choices(0), config, tokens);
                    for (std::size_t i = 0; i < y.size(); ++i) { sum += y[i] * noise(9000 + i); }
                    return sum;
                };
                loss();
                CHECK(auxiliary_loss(layer.choices(0), config, tokens) > 0.9);
                const auto chosen_now = [&] {
                    return std::vector(layer.choices(0).chosen, layer.choices(0).chosen + tokens * config.top);
                };
                for (std::size_t i = 0; i < d_x.size(); ++i) { d_x[i] = noise(9000 + i); }
                layer.backward(0, factor, router, experts, d_router, d_experts, d_x.data());
                const auto chosen = chosen_now();
                const auto check = [&](std::vector<double>& values, const std::vector<double>& gradient) {
                    double largest = 0;
                    for (const double g : gradient) { largest = std::max(largest, std::abs(g)); }
                    REQUIRE(largest > 0);
                    for (std::size_t i = 0; i < values.size(); ++i) {
                        constexpr double h = 1e-5;
                        const double kept = values[i];
                        values[i] = kept + h;
                        const double above = loss();
                        REQUIRE(chosen_now() == chosen);
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
            using Layers = ExpertLayers<double>;
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
