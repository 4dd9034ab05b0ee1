// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "../../examples/train_gpt/program/command_line.hpp"
#include "../../examples/train_gpt/program/job.hpp"
#include "../../examples/train_gpt/program/plan_summary.hpp"
#include "../largest_difference.hpp"
#include "../test_size.hpp"
#include "whole_model.hpp"

namespace train_gpt::test {

/// Text with structure, so that the loss falls and gradients are not noise alone.
inline const std::vector<Token>& corpus() {
    static const std::vector<Token> text = [] {
        std::vector<Token> bytes = random_bytes(997, 77);
        for (Token& byte : bytes) { byte = static_cast<Token>('a' + byte % 23); }
        for (std::size_t i = 400; i < bytes.size(); ++i) { bytes[i] = bytes[i % 200]; }
        return bytes;
    }();
    return text;
}

inline Options base() {
    Options options;
    options.mesh = {1, 1, 1};
    options.policy = {program::PolicyKind::no_shard};
    options.model = {8, 2, 8, 2, HeadKind::tied};
    options.batch = test_size::reduced() ? 24 : 120;
    // A step that another number of ranks takes otherwise shows in the second loss.
    options.steps = test_size::reduced() ? 8 : 12;
    options.dtype = Dtype::fp64;
    options.learning_rate = 1e-3;
    options.seed = 3;
    return options;
}

/// A parameter in full.
struct Parameter {
    std::string path, name;
    std::vector<double> values;
};
/// A run, and what its ranks hold behind the last step.
struct Trained : Results {
    std::vector<Parameter> parameters;
};
Trained trained(Job job);

inline Job job_of(const Options& options) {
    validate(options);
    Job job{options, corpus()};
    job.chosen = make_plan(options).chosen;
    return job;
}
inline Results run(const Options& options) { return train(job_of(options)); }
inline Trained trained(const Options& options) { return trained(job_of(options)); }

/// Relative L2 distance of the tensor that differs most; the attention key bias, whose gradient is rounding noise,
/// left out.
inline double worst_parameter(const Options& options, const Trained& a, const Trained& b) {
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
        worst = larger(worst, std::sqrt(difference / size));
    }
    return worst;
}

struct Bounds {
    double loss;
    double norm;
    double parameter;
};

inline void check_close(const Options& options, const Trained& one, const Trained& other, Bounds bounds) {
    double loss = 0;
    double norm = 0;
    for (std::size_t s = 0; s < options.steps; ++s) {
        loss = larger(loss, std::abs(one.losses[s] - other.losses[s]));
        norm = larger(norm, std::abs(one.grad_norms[s] - other.grad_norms[s]) / one.grad_norms[s]);
    }
    CAPTURE(options.policy.text());
    CAPTURE(options.mesh.describe());
    CAPTURE(options.microbatches);
    CHECK(loss <= bounds.loss);
    CHECK(norm <= bounds.norm);
    CHECK(worst_parameter(options, one, other) <= bounds.parameter);
}

/// f(options) with every policy, hybrid groups included, that the options' data-parallel ranks take.
template <class F>
void for_each_policy(Options options, F f) {
    using enum program::PolicyKind;
    for (const program::PolicyKind policy : {no_shard, shard_optimizer, shard_grad_op, full_shard}) {
        options.policy = {policy};
        f(options);
    }
    for (std::size_t group = 1; group <= options.mesh.dp; ++group) {
        if (options.mesh.dp % group != 0) { continue; }
        options.policy = {hybrid_shard, group};
        f(options);
        if (group == 1 || group == options.mesh.dp) { continue; }  // which are other policies' rows
        options.policy = {hybrid_optimizer, group};
        f(options);
        options.policy = {secondary_shard, group};
        f(options);
    }
}

/// Measured collectives, by verb and axes, are the planned ones, but for experts' without a capacity, which depend on
/// the tokens.
inline void check_collectives(const Options& options, const Collectives& expected, const Collectives& all) {
    CHECK(all.size() == expected.size());
    for (const auto& [of, planned] : expected) {
        const std::string &axes = of.first, &verb = of.second;
        if (options.model.experts > 0 && options.model.capacity == 0 && axes == "ep") { continue; }
        CAPTURE(verb);
        CAPTURE(axes);
        REQUIRE(all.contains(of));
        const auto& measured = all.at(of);
        CHECK(measured.calls == planned.calls);
        CHECK(measured.moved == planned.moved);
        CHECK(measured.payload == planned.payload);
    }
}
/// Collectives are the planned ones. Peak bytes are no fewer than the planned ones, which are those of buffers, and
/// more by what the library's objects take: up to 24 KiB for each group, whatever its size. Steady steps take no
/// memory; with experts they take tables of routes.
inline void check_plan(const Options& options) {
    const PlanSummary plan = make_plan(options);
    const Results results = run(options);
    CAPTURE(options.policy.text());
    CAPTURE(options.mesh.describe());
    CAPTURE(options.microbatches);
    CAPTURE(options.ep);
    check_collectives(options, plan.collectives, results.collectives);
    const std::size_t of_layers = options.model.layers * (options.model.experts > 0 ? 3 : 1);
    const std::size_t groups = 2 + of_layers + (options.model.head == HeadKind::untied ? 1 : 0);
    CHECK(results.peak_bytes_per_rank >= plan.bytes_per_rank());
    CHECK(results.peak_bytes_per_rank <= plan.bytes_per_rank() + groups * 24576);
    if (options.model.experts == 0) { CHECK(results.allocations_per_steady_step == 0); }
}

}  // namespace train_gpt::test
