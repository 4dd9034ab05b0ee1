// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "../../examples/train_gpt/program/command_line.hpp"
#include "../../examples/train_gpt/program/job.hpp"
#include "../../examples/train_gpt/program/plan_summary.hpp"
#include "../test_size.hpp"
#include "whole_model.hpp"

using namespace train_gpt;

namespace {

/// Text with structure, so that the loss falls and gradients are not noise alone.
const std::vector<std::uint8_t>& corpus() {
    static const std::vector<std::uint8_t> text = [] {
        std::vector<std::uint8_t> bytes = test::random_bytes(997, 77);
        for (std::uint8_t& byte : bytes) { byte = static_cast<std::uint8_t>('a' + byte % 23); }
        for (std::size_t i = 400; i < bytes.size(); ++i) { bytes[i] = bytes[i % 200]; }
        return bytes;
    }();
    return text;
}

Options base() {
    Options options;
    options.mesh = {1, 1, 1};
    options.policy = PolicyKind::no_shard;
    options.model = {16, 2, 8, 2, HeadKind::tied};
    options.batch = 120;
    options.steps = test_size::reduced() ? 20 : 50;
    options.dtype = Dtype::fp64;
    options.learning_rate = 1e-3;
    options.seed = 3;
    return options;
}

Results run(const Options& options) {
    validate(options);
    return train({options, corpus(), {}, KeepParameters::yes});
}

/// Relative L2 distance of the tensor that differs most; the attention key bias, whose gradient is rounding noise,
/// left out.
double worst_parameter(const Options& options, const Results& a, const Results& b) {
    REQUIRE(a.parameters.size() == b.parameters.size());
    const std::size_t d = options.model.head_width();
    double worst = 0;
    for (std::size_t k = 0; k < a.parameters.size(); ++k) {
        const auto& x = a.parameters[k];
        const auto& y = b.parameters[k];
        REQUIRE(x.path == y.path);
        REQUIRE(x.name == y.name);
        REQUIRE(x.values.size() == y.values.size());
        double difference = 0;
        double size = 0;
        for (std::size_t i = 0; i < x.values.size(); ++i) {
            if (x.name == "qkv_bias" && i / d % 3 == 1) { continue; }
            difference += std::pow(x.values[i] - y.values[i], 2);
            size += std::pow(x.values[i], 2);
        }
        REQUIRE(size > 0);
        worst = std::max(worst, std::sqrt(difference / size));
    }
    return worst;
}

struct Bounds {
    double loss;
    double norm;
    double parameter;
};

void check_close(const Options& options, const Results& one, const Results& other, Bounds bounds) {
    double loss = 0;
    double norm = 0;
    for (std::size_t s = 0; s < options.steps; ++s) {
        loss = std::max(loss, std::abs(one.losses[s] - other.losses[s]));
        norm = std::max(norm, std::abs(one.grad_norms[s] - other.grad_norms[s]) / one.grad_norms[s]);
    }
    CAPTURE(options.policy_text());
    CAPTURE(options.mesh.describe());
    CAPTURE(options.microbatches);
    CHECK(loss <= bounds.loss);
    CHECK(norm <= bounds.norm);
    CHECK(worst_parameter(options, one, other) <= bounds.parameter);
}

/// f(options) for every policy, hybrid groups included, on `world` ranks as threads.
template <class F>
void for_each_policy(Options options, std::size_t world, F f) {
    options.mesh = {world, 1, 1};
    for (const PolicyKind policy :
         {PolicyKind::no_shard, PolicyKind::shard_optimizer, PolicyKind::shard_grad_op, PolicyKind::full_shard}) {
        options.policy = policy;
        f(options);
    }
    options.policy = PolicyKind::hybrid_shard;
    for (std::size_t group = 1; group <= world; ++group) {
        if (world % group != 0) { continue; }
        options.hybrid_group = group;
        f(options);
    }
}

void check_all_worlds(OptimizerKind optimizer) {
    Options options = base();
    options.optimizer = optimizer;
    options.engine = EngineKind::self;
    const Results one = run(options);
    CHECK(one.losses.front() - one.losses.back() > 0.001);
    options.engine = EngineKind::threads;
    const auto worlds =
        test_size::reduced() ? std::vector<std::size_t>{2, 3, 4} : std::vector<std::size_t>{1, 2, 3, 4, 5, 8};
    for (const std::size_t world : worlds) {
        for (const std::size_t microbatches : {1U, 3U}) {
            options.microbatches = microbatches;
            for_each_policy(options, world, [&](const Options& each) {
                check_close(each, one, run(each), {1e-11, 1e-9, 1e-9});
            });
        }
    }
}

}  // namespace

TEST_SUITE("gpt.policies") {
    TEST_CASE("fp64, SGD: every policy, world and number of microbatches trains as one rank does") {
        check_all_worlds(OptimizerKind::sgd);
    }

    TEST_CASE("fp64, AdamW: every policy, world and number of microbatches trains as one rank does") {
        check_all_worlds(OptimizerKind::adamw);
    }

    TEST_CASE("fp32 with clipping: every policy and world stays close to one rank") {
        Options options = base();
        options.dtype = Dtype::fp32;
        const Results one = run(options);
        for (const std::size_t world : {2U, 3U, 8U}) {
            for_each_policy(options, world, [&](const Options& each) {
                check_close(each, one, run(each), {1e-5, 1e-4, 1e-3});
            });
        }
    }

    TEST_CASE("bf16 stays within 1e-3 of one rank in bf16, and within 1e-2 of fp32") {
        Options options = base();
        const auto close = [&](const Results& a, const Results& b, double bound) {
            for (std::size_t s = 0; s < options.steps; ++s) { CHECK(std::abs(a.losses[s] - b.losses[s]) <= bound); }
        };
        options.dtype = Dtype::fp32;
        const Results fp32 = run(options);
        options.dtype = Dtype::bf16;
        const Results one = run(options);
        close(fp32, one, 1e-2);
        for (const std::size_t world : {2U, 4U}) {
            for_each_policy(options, world, [&](const Options& each) { close(one, run(each), 1e-3); });
        }
    }

    TEST_CASE("fp32 and bf16, one microbatch: the four policies give the same bits, clipping included") {
        for (const Dtype dtype : {Dtype::fp32, Dtype::bf16}) {
            for (const std::size_t world : {2U, 3U, 4U}) {
                Options options = base();
                options.dtype = dtype;
                options.mesh = {world, 1, 1};
                options.clip = 0.05;
                options.steps = 12;
                const Results first = run(options);
                for (const PolicyKind policy :
                     {PolicyKind::shard_optimizer, PolicyKind::shard_grad_op, PolicyKind::full_shard}) {
                    options.policy = policy;
                    const Results other = run(options);
                    CAPTURE(options.policy_text());
                    CAPTURE(world);
                    CHECK(other.losses == first.losses);
                    CHECK(other.grad_norms == first.grad_norms);
                    for (std::size_t k = 0; k < first.parameters.size(); ++k) {
                        CHECK(other.parameters[k].values == first.parameters[k].values);
                    }
                }
            }
        }
    }

    TEST_CASE("an untied head, and a model whose groups are smaller than the world, train as one rank does") {
        Options options = base();
        options.model.head = HeadKind::untied;
        options.model.width = 4;
        options.steps = 10;
        options.batch = 32;
        const Results one = run(options);
        for (const std::size_t world : {2U, 16U}) {
            for_each_policy(options, world, [&](const Options& each) {
                check_close(each, one, run(each), {1e-11, 1e-9, 1e-9});
            });
        }
    }

    TEST_CASE("measured collectives and peak bytes are the planned ones, and steady steps take no memory") {
        for (const HeadKind head : {HeadKind::tied, HeadKind::untied}) {
            for (const Dtype dtype : {Dtype::fp32, Dtype::bf16}) {
                for (const std::size_t microbatches : {1U, 2U}) {
                    Options options = base();
                    options.dtype = dtype;
                    options.steps = 4;
                    options.batch = 16;
                    options.model = {16, 3, 64, 4, head};
                    options.microbatches = microbatches;
                    for_each_policy(options, 4, [&](const Options& each) {
                        const PlanSummary plan = make_plan(each);
                        const Results results = run(each);
                        CAPTURE(each.policy_text());
                        CAPTURE(each.microbatches);
                        const auto expected = plan.collectives();
                        REQUIRE(results.collectives.size() == expected.size());
                        for (std::size_t i = 0; i < expected.size(); ++i) {
                            CAPTURE(expected[i].verb);
                            CHECK(results.collectives[i].verb == expected[i].verb);
                            CHECK(results.collectives[i].count == expected[i].count);
                            CHECK(results.collectives[i].bytes == expected[i].bytes);
                            CHECK(results.collectives[i].payload == expected[i].payload);
                        }
                        const auto planned = static_cast<double>(plan.bytes_per_rank());
                        CHECK(static_cast<double>(results.peak_bytes_per_rank) / planned ==
                              doctest::Approx(1.0).epsilon(0.02));
                        CHECK(results.allocations_per_steady_step == 0);
                    });
                }
            }
        }
    }
}
