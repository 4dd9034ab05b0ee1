// SPDX-License-Identifier: Apache-2.0
// Norms of single parameters and groups, and the infinity norm, against sums over whole gradients by hand.
#include <shardkit/verify/gradient_norms.hpp>

#include <cmath>
#include <cstddef>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/threads/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/optim/clip.hpp>
#include <shardkit/optim/sgd.hpp>
#include <shardkit/policy/dynamic_policy.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/step/loss_scale.hpp>

#include "unit/thrown_message.hpp"

namespace sk = shardkit;

namespace gradient_norms_test {

namespace {

using Mesh = sk::DeviceMesh<sk::dynamic, sk::dynamic>;
using Layer = sk::Sharded<sk::TensorList<float>, sk::DynamicPolicy>;
constexpr double infinity = std::numeric_limits<double>::infinity();

/// A weight that tp splits, one that it replicates, one that is frozen, and one of a single element.
template <class Rank>
Layer layer(Rank& rank, const std::string& path, const sk::DynamicPolicy& policy) {
    sk::TensorList<float> tensors{{"split", {6, 5}, {.tp = sk::tp::Split<0>::placement}},
                                  {"whole", {7}},
                                  {"frozen", {5}, {.frozen = true}},
                                  {"one", {1}}};
    Layer made(rank, path, std::move(tensors), {policy});
    return made;
}
const std::vector<std::string> trained{"split", "whole", "one"};
/// Element i of the whole gradient; quarters, so that halves and sums are exact.
double gradient(const std::string& path, const std::string& name, std::size_t i) {
    const double sign = i % 2 == 0 ? -1 : 1;
    return sign * static_cast<double>(i + 1 + 10 * name.size()) * (path == "b" ? 8 : 0.25);
}
std::size_t size(const std::string& name) { return name == "split" ? 30 : name == "whole" ? 7 : 1; }

struct Norms {
    double squares = 0;
    double largest = 0;

    void add(const Norms& other) {
        squares += other.squares;
        largest = std::max(largest, other.largest);
    }
    bool is(const sk::GradientNorm& norm) const {
        return std::abs(norm.two - std::sqrt(squares)) <= 1e-12 * std::sqrt(squares) && norm.infinity == largest;
    }
};
Norms of(const std::string& path, const std::string& name) {
    Norms norms;
    for (std::size_t i = 0; i < size(name); ++i) {
        const double g = gradient(path, name, i);
        norms.add({g * g, std::abs(g)});
    }
    return norms;
}

/// Fills one microbatch so that the mean over the data ranks is `gradient`, times `scale`.
template <class Rank>
void add(Rank& rank, sk::Accumulation& accumulation, Layer& layer, double scale, double planted = 0) {
    auto gradients = accumulation.gradients(layer);
    const std::size_t tp = rank.grid().extent("tp");
    const std::size_t tp_index = rank.grid().coordinate("tp", rank.rank());
    for (const std::string& name : trained) {
        const auto view = gradients.view(name);
        const std::size_t first = name == "split" ? tp_index * 30 / tp : 0;
        for (std::size_t i = 0; i < view.size(); ++i) {
            view[i] = static_cast<float>(scale * gradient(layer.path(), name, first + i));
        }
        if (planted != 0 && name == "whole") { view[3] = static_cast<float>(planted); }
    }
    for (float& g : gradients.view("frozen")) { g = 1000; }
    accumulation.add(std::move(gradients));
}

const std::vector<sk::DynamicPolicy> policies{
    sk::DynamicPolicy(sk::NoShard{}), sk::DynamicPolicy(sk::ShardOptimizer{}), sk::DynamicPolicy(sk::ShardGradOp{}),
    sk::DynamicPolicy(sk::FullShard{}), sk::DynamicPolicy(sk::HybridShard<2>{})};

}  // namespace

TEST_CASE("gradient norms: of parameters, groups and the model; each element once, on every mesh, for every policy") {
    for (const auto& mesh : {Mesh{1, 1}, Mesh{2, 1}, Mesh{4, 2}, Mesh{2, 2}}) {
        for (std::size_t policy_number = 0; policy_number < policies.size(); ++policy_number) {
            if (mesh.dp() == 1 && policy_number == 4) { continue; }  // HybridShard<2> does not divide it
            const sk::DynamicPolicy& policy = policies[policy_number];
            sk::threads::run(mesh, [&](auto& rank) {
                auto a = layer(rank, "a", policy);
                auto b = layer(rank, "b", policy);
                auto c = layer(rank, "c", policy);
                const sk::Model model{a, b, c};
                sk::Accumulation accumulation{model};
                add(rank, accumulation, a, 4);
                add(rank, accumulation, b, 4);
                accumulation.skip(c);
                sk::LossScale scale{rank, {.initial = 4}};
                const auto reduced = sk::reduce(std::move(accumulation), sk::mean, scale);
                const sk::GradientNorms norms = sk::gradient_norms(reduced);
                REQUIRE(norms.parameters.size() == 9);
                REQUIRE(norms.groups.size() == 3);
                Norms all;
                for (std::size_t g = 0; g < 2; ++g) {
                    const std::string path = g == 0 ? "a" : "b";
                    Norms group;
                    for (std::size_t p = 0; p < 3; ++p) {
                        const sk::GradientNorm& norm = norms.parameters[3 * g + p];
                        CHECK(norm.path == path);
                        CHECK(norm.parameter == trained[p]);
                        CHECK(of(path, trained[p]).is(norm));
                        group.add(of(path, trained[p]));
                    }
                    CHECK(norms.groups[g].path == path);
                    CHECK(group.is(norms.groups[g]));
                    all.add(group);
                }
                CHECK(norms.groups[2].two == 0);
                CHECK(norms.groups[2].infinity == 0);
                CHECK(all.is(norms.model));
                const auto two = sk::global_norm(reduced);
                CHECK(std::abs(two.value() - norms.model.two) < 1e-5 * norms.model.two);
                const auto largest = sk::global_norm(reduced, sk::NormKind::infinity);
                CHECK(largest.value() == all.largest);
                CHECK(largest.found_inf() == sk::FoundInf::no);
                CHECK(two.value() == sk::global_norm(reduced).value());
            });
        }
    }
}

TEST_CASE("gradient norms: an infinite element and a NaN are in their parameter's norms, and skip a scaled step") {
    for (const auto& policy : policies) {
        sk::threads::run(Mesh{4, 1}, [&](auto& rank) {
            for (const double planted : {infinity, std::nan("")}) {
                auto a = layer(rank, "a", policy);
                auto b = layer(rank, "b", policy);
                const sk::Model model{a, b};
                sk::Accumulation accumulation{model};
                add(rank, accumulation, a, 1);
                add(rank, accumulation, b, 1, rank.rank() == 1 ? planted : 0);
                const auto reduced = sk::reduce(std::move(accumulation), sk::mean);
                const sk::GradientNorms norms = sk::gradient_norms(reduced);
                const auto same = [&](double value) {
                    return std::isnan(planted) ? std::isnan(value) : value == planted;
                };
                for (const auto& norm : norms.parameters) {
                    const bool is = norm.path == "b" && norm.parameter == "whole";
                    CHECK((is ? same(norm.two) && same(norm.infinity) : of(norm.path, norm.parameter).is(norm)));
                }
                CHECK(std::isfinite(norms.groups[0].infinity));
                CHECK(same(norms.groups[1].infinity));
                CHECK(same(norms.model.two));
                const auto largest = sk::global_norm(reduced, sk::NormKind::infinity);
                CHECK(same(largest.value()));
                CHECK(largest.found_inf() == sk::FoundInf::yes);
            }
        });
    }
}

TEST_CASE("infinity norm: a step clips by it, and a loss scale skips by its verdict") {
    for (const auto& policy : policies) {
        sk::threads::run(Mesh{2, 2}, [&](auto& rank) {
            auto a = layer(rank, "a", policy);
            const sk::Model model{a};
            sk::SGD optimizer{model, {.learning_rate = 1}};
            sk::LossScale scale{rank, {.initial = 2}};
            sk::Accumulation overflow{model};
            add(rank, overflow, a, 1, infinity);
            optimizer.step(std::move(overflow),
                           {.max_norm = 1, .loss_scale = &scale, .norm = sk::NormKind::infinity});
            CHECK(scale.skipped());
            sk::Accumulation accumulation{model};
            add(rank, accumulation, a, 1);
            const auto norm = optimizer.step(std::move(accumulation),
                                             {.max_norm = 1, .loss_scale = &scale, .norm = sk::NormKind::infinity});
            const double largest = 0.25 * 80;  // of element 29 of "split"
            CHECK(norm.value() == largest);
            std::vector<float> values(7);
            a.read_full("whole", values);
            for (std::size_t i = 0; i < 7; ++i) {
                CHECK(std::abs(values[i] + gradient("a", "whole", i) / (largest + 1e-6)) < 1e-6);
            }
        });
    }
}

TEST_CASE("gradient norms: ranks that differ are told") {
    sk::threads::run(Mesh{2, 1}, [](auto& rank) {
        auto a = layer(rank, "a", sk::DynamicPolicy(sk::FullShard{}));
        const sk::Model model{a};
        sk::Accumulation accumulation{model};
        add(rank, accumulation, a, 1);
        const auto reduced = sk::reduce(std::move(accumulation), rank.rank() == 0 ? sk::sum : sk::mean);
        const std::string text = thrown_message<sk::CommError>([&] { sk::gradient_norms(reduced); });
        CAPTURE(text);
        CHECK(has(text, "with divisor 1 (stated at "));
        CHECK(has(text, "with divisor 2 (stated at "));
    });
    sk::threads::run(Mesh{2, 1}, [](auto& rank) {
        auto a = layer(rank, "a", sk::DynamicPolicy(sk::FullShard{}));
        const sk::Model model{a};
        sk::Accumulation accumulation{model};
        add(rank, accumulation, a, 1);
        const auto reduced = sk::reduce(std::move(accumulation), sk::mean);
        const auto kind = rank.rank() == 0 ? sk::NormKind::two : sk::NormKind::infinity;
        const std::string text = thrown_message<sk::CommError>([&] { sk::global_norm(reduced, kind); });
        CAPTURE(text);
        CHECK(has(text, "the ranks disagree in call "));
        CHECK(has(text, "all_reduce"));
    });
}

}  // namespace gradient_norms_test
