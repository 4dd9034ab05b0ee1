// SPDX-License-Identifier: Apache-2.0
// The program that every mutant of the example trainer's reductions over ranks, and of the layers' below it, must
// fail: trainings and samples on a 2x2x2 mesh against one rank, the number of collectives that a step reports, hashes
// of slices, a signal to one rank, and a cross-entropy over a split vocabulary.

#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <shardkit/backend/threads/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/mesh/expert_mesh.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/tensor_parallel/cross_entropy.hpp>

#include "train_gpt/program/train_on_rank.hpp"

using namespace train_gpt;

namespace {

Options options_of(const program::MeshExtents& mesh) {
    Options options;
    options.mesh = mesh;
    options.model = {8, 1, 8, 2, HeadKind::tied};
    options.policy = {program::PolicyKind::full_shard};
    options.batch = 4;
    options.steps = 3;
    options.dtype = Dtype::fp64;
    options.optimizer = OptimizerKind::sgd;
    options.learning_rate = 0.1;
    options.clip = 0;
    options.sample = 12;
    return options;
}

Results train_on(const Options& options, const std::function<void(std::string_view)>& hashed = {}) {
    std::vector<Token> text;
    for (std::size_t i = 0; i < 500; ++i) { text.push_back(static_cast<Token>(11 * (i * i % 23))); }
    Job job{options, text};
    job.hashed = hashed;
    Results results(options.steps);
    const program::MeshExtents& mesh = options.mesh;
    sk::threads::run(sk::ExpertMesh(sk::DeviceMesh(mesh.dp, mesh.tp, mesh.cp), options.ep),
                     [&](auto& rank) { train_on_rank<double>(rank, job, results); });
    return results;
}

bool agree(const char* what, std::size_t step, double given, double expected) {
    if (std::abs(given - expected) < 1e-11) { return true; }
    std::printf("%s of step %zu on split ranks is %.17g, expected %.17g\n", what, step, given, expected);
    return false;
}

bool trains_as_one_rank() {
    const Results one = train_on(options_of({1, 1, 1}));
    for (const bool split : {false, true}) {
        Options options = options_of({2, 2, 2});
        options.sequence_parallel = split ? SequenceParallel::on : SequenceParallel::off;
        options.context = split ? ContextExchange::ring : ContextExchange::gather;
        const Results all = train_on(options);
        for (std::size_t s = 0; s < one.losses.size(); ++s) {
            if (!agree("loss", s, all.losses[s], one.losses[s])) { return false; }
            if (!agree("gradient norm", s, all.grad_norms[s], one.grad_norms[s])) { return false; }
        }
        if (all.sample != one.sample) {
            std::puts("the sample on 2x2x2 is another text than one rank's");
            return false;
        }
        const auto norm = all.collectives.find({"world", "all_reduce"});
        const std::uint64_t norms = norm == all.collectives.end() ? 0 : norm->second.calls;
        if (norms != 1) {
            std::printf("a step reports %llu all-reduces over the world, expected the norm's\n",
                        static_cast<unsigned long long>(norms));
            return false;
        }
    }
    return true;
}

/// Experts that ep and tp cut, against whole ones on as many data ranks, whose routers count the same passes.
bool trains_experts_as_whole_ones() {
    const auto train_experts = [](std::size_t tp, std::size_t ep) {
        Options options = options_of({2, tp, 1});
        options.model.experts = 4;
        options.ep = ep;
        return train_on(options);
    };
    const Results whole = train_experts(1, 1);
    const Results cut = train_experts(2, 2);
    for (std::size_t s = 0; s < whole.losses.size(); ++s) {
        if (!agree("loss with experts", s, cut.losses[s], whole.losses[s])) { return false; }
        if (!agree("gradient norm with experts", s, cut.grad_norms[s], whole.grad_norms[s])) { return false; }
    }
    return true;
}

/// Hashes of slices are the same for any number of data ranks, and that of a single one is the reduced gradients', in
/// a group that tp splits.
bool hashes_slices() {
    const auto lines_of = [](std::size_t dp, std::size_t slices) {
        Options options = options_of({dp, 2, 1});
        options.model.head = HeadKind::untied;
        options.slices = slices;
        options.microbatches = slices / dp;
        options.hashes = "asked for";
        std::string lines;
        train_on(options, [&](std::string_view step) { lines += step; });
        return lines;
    };
    const std::string lines = lines_of(1, 1);
    const auto hash_of = [&](const char* begin) {
        const std::size_t end = lines.find('\n', lines.find(begin) + 1);
        return lines.substr(end - 16, 16);
    };
    if (hash_of("\n3\tslice 0\tlogits\t") == hash_of("\n3\tgradients\tlogits\t") &&
        lines_of(1, 2) == lines_of(2, 2)) {
        return true;
    }
    std::puts("the hashes of slices are others on split ranks");
    return false;
}

/// Two tokens, a vocabulary of four over tp = 2: logits v for column v, so that the loss is a closed form.
bool cross_entropy_is_closed_form() {
    double total = 0;
    for (const int v : {0, 1, 2, 3}) { total += std::exp(v); }
    bool right = true;
    sk::threads::run(sk::DeviceMesh(1, 2, 1), [&](auto& rank) {
        const auto tp = rank.template sub_mesh<sk::Axes<sk::Tp>>();
        const auto part = sk::tp::VocabularyPart::of(4, 4, 2, tp.rank());
        sk::tp::CrossEntropy<double> cross_entropy(rank, tp, part, 2);
        const double first = 2.0 * static_cast<double>(tp.rank());
        std::vector<double> logits{first, first + 1, first, first + 1};
        const std::vector<int> targets{1, 2};
        std::vector<double> losses(2);
        cross_entropy(std::span(logits), std::span<const int>(targets), 1.0, std::span(losses));
        if (rank.rank() != 0) { return; }
        for (std::size_t t = 0; t < 2; ++t) {
            right = right && std::abs(losses[t] - (std::log(total) - targets[t])) < 1e-12;
        }
    });
    if (!right) { std::puts("the cross-entropy over a split vocabulary is not log(sum of exp) - target"); }
    return right;
}

/// A signal that one rank alone has seen ends the run of all after the same step.
bool stops_together() {
    std::vector<Token> text(100, 7);
    Options options;
    options.mesh = {2, 2, 2};
    options.model = {8, 1, 8, 2, HeadKind::tied};
    options.policy = {program::PolicyKind::full_shard};
    options.batch = 2;
    options.steps = 5;
    Job job{options, text};
    std::atomic<int> asked{0};
    job.signal = [&] { return ++asked == 8 ? 15 : 0; };  // the last of the eight ranks, in the first step
    Results results(options.steps);
    sk::threads::run(sk::DeviceMesh(2, 2, 2), [&](auto& rank) { train_on_rank<float>(rank, job, results); });
    if (results.signal == 15 && results.losses.size() == 1 && asked == 8) { return true; }
    std::printf("after the signal to one rank there were %zu steps\n", results.losses.size());
    return false;
}

}  // namespace

int main() {
    if (!stops_together() || !trains_as_one_rank() || !trains_experts_as_whole_ones() || !hashes_slices() ||
        !cross_entropy_is_closed_form()) {
        return 1;
    }
    std::puts("2x2x2 agrees with one rank");
    return 0;
}
