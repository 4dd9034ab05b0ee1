// SPDX-License-Identifier: Apache-2.0
// Data, tensor and context parallelism together: `3d_parallel [ranks]`, or with the mesh itself, `3d_parallel 2 2 2`.
// A block of attention learns to name the token two places back. Losses and gradient norms are those of one rank.
// g++ -std=c++20 -Iinclude examples/3d_parallel.cpp -pthread -o example && ./example
#include <shardkit/context_parallel.hpp>
#include <shardkit/plan.hpp>
#include <shardkit/shardkit.hpp>
#include <shardkit/tensor_parallel.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <numeric>

#include "plain_layers.hpp"

namespace sk = shardkit;
using plain::Order, plain::Values, plain::View;
using Mesh = sk::DeviceMesh<sk::dynamic, sk::dynamic, sk::dynamic>;

constexpr std::size_t vocabulary = 16, sequence = 16, width = 32, heads = 4;
constexpr std::size_t batch = 16;  // sequences of a step, over all ranks
constexpr std::size_t steps = 100;

// How tp holds a parameter is part of its type: rows, columns or, where the type does not say, all of it.
struct Embedding : sk::Param<"embedding", double, vocabulary, width>, sk::tp::Split<0> {};
struct Positions : sk::Param<"positions", double, sequence, width> {};
// Rows: [head][query | key | value][head width].
struct Qkv : sk::Param<"qkv", double, 3 * width, width>, sk::tp::Split<0> {};
struct Projection : sk::Param<"projection", double, width, width>, sk::tp::Split<1> {};
struct Head : sk::Alias<"head", Embedding> {};
using Network = sk::Params<Embedding, Positions, Qkv, Projection, Head>;

// Token i of an endless random text.
int token(std::size_t i) {
    const std::uint64_t mixed = (i ^ (i >> 7)) * 0x9E3779B97F4A7C15U;
    return static_cast<int>(((mixed ^ (mixed >> 32)) * 0xD6E8FEB86659FD93U >> 32) % vocabulary);
}

struct Result {
    Values losses, norms;
    std::string traffic;  // of rank 0, one step
};

Result train(const Mesh& mesh) {
    if (batch % mesh.dp() != 0 || heads % mesh.tp() != 0) {
        throw std::invalid_argument("mesh " + mesh.describe() + ": dp has to divide a batch of " +
                                    std::to_string(batch) + ", and tp " + std::to_string(heads) + " heads");
    }
    Result result;
    sk::threads::run(mesh, [&](auto& rank) {
        using Kernels = sk::host::AnyKernels;
        const auto stream = rank.compute_stream();
        const auto dp = rank.template sub_mesh<sk::Axes<sk::Dp>>();
        const auto tp = rank.template sub_mesh<sk::Axes<sk::Tp>>();
        const auto cp = rank.template sub_mesh<sk::Axes<sk::Cp>>();
        const auto data = rank.template sub_mesh<sk::Axes<sk::Dp, sk::Cp>>();

        // The policy shards over dp what tp leaves to a rank.
        sk::Sharded<Network, sk::FullShard> network{rank, "network"};
        network.initialize([](auto, auto name, std::uint64_t i) {
            return 0.2 * std::sin(7.0 * static_cast<double>(i * i) + static_cast<double>(name.size()));
        });
        sk::Model model{network};
        sk::AdamW optimizer{model, {.learning_rate = 1e-2}};

        // A rank has some of the sequences (dp), two chunks of each (cp), some of the heads and of the words (tp).
        const auto chunks = sk::cp::CausalChunks::of(sequence, cp.size(), cp.rank());
        const auto words = sk::tp::VocabularyPart::of(vocabulary, vocabulary, tp.size(), tp.rank());
        const sk::cp::AttentionShape shape{batch / dp.size(), heads / tp.size(), chunks.tokens(), width / heads};
        const std::size_t n = shape.batch * shape.tokens, columns = width / tp.size();
        sk::cp::Attention<double> attention{rank, cp, shape};
        sk::tp::CrossEntropy<double> cross_entropy{rank, tp, words, n};
        const auto sum = [&](Values partial) {  // over the parts of a layer: an all-reduce, forward or backward
            sk::tp::sum_tokens(tp, sk::tp::SequenceParallel::off, std::span(partial), std::span<double>(), stream);
            return partial;
        };
        const auto position = [&](std::size_t t) { return chunks.position(t % shape.tokens); };
        const auto place = [&](std::size_t i) { return position(i / width) * width + i % width; };  // in Positions

        for (std::size_t step = 0; step < steps; ++step) {
            rank.traffic().clear();
            std::vector<int> tokens(n), targets(n);
            for (std::size_t t = 0; t < n; ++t) {
                const std::size_t text = (step * batch + dp.rank() * shape.batch + t / shape.tokens) * sequence;
                tokens[t] = token(text + position(t));
                targets[t] = token(text + std::max<std::size_t>(position(t), 2) - 2);
            }
            const std::span<const int> in = tokens, out = targets;
            sk::Accumulation accumulation{model};
            auto w = network.unshard();
            auto g = accumulation.gradients(network);

            // Forward: embeddings, attention beside a residual, logits.
            Values x(n * width), mixed(shape.queries()), log_sums(shape.rows()), losses(n);
            sk::tp::embed<Kernels>(stream, in, words, View(w[Embedding{}]), std::span(x));
            x = sum(x);
            for (std::size_t i = 0; i < x.size(); ++i) { x[i] += w[Positions{}][place(i)]; }
            const Values qkv = plain::reorder(Order::by_head, plain::linear(x, w[Qkv{}], width), shape);
            const View queries = View(qkv).first(mixed.size()), keys_values = View(qkv).subspan(mixed.size());
            attention.forward(queries, keys_values, std::span(mixed), std::span(log_sums));
            const Values joined = plain::reorder(Order::by_token, mixed, shape);
            Values y = sum(plain::linear(joined, w[Projection{}], columns));
            plain::add(x, y);
            Values logits = plain::linear(y, w[Head{}], width);
            cross_entropy(std::span(logits), out, 1.0 / static_cast<double>(n), std::span(losses));

            // Backward, from the logits' gradients, which lie in the logits' place now.
            const Values dy = sum(plain::linear_backward(y, w[Head{}], logits, g[Head{}], width));
            const Values d_joined = plain::linear_backward(joined, w[Projection{}], dy, g[Projection{}], columns);
            Values d_qkv(qkv.size());
            attention.backward(queries, keys_values, mixed, log_sums, plain::reorder(Order::by_head, d_joined, shape),
                               std::span(d_qkv).first(mixed.size()), std::span(d_qkv).subspan(mixed.size()));
            const Values d_rows = plain::reorder(Order::by_token, d_qkv, shape);
            Values dx = sum(plain::linear_backward(x, w[Qkv{}], d_rows, g[Qkv{}], width));
            plain::add(dy, dx);
            for (std::size_t i = 0; i < x.size(); ++i) { g[Positions{}][place(i)] += dx[i]; }
            sk::tp::embed_backward<Kernels>(stream, in, words, View(dx), std::span<double>(g[Embedding{}]));
            network.reshard(std::move(w));
            accumulation.add(std::move(g));

            // The mean over dp x cp, of gradients and, as it is the user's own, of the loss.
            const auto norm = optimizer.step(std::move(accumulation), {.divisor = sk::mean, .max_norm = 1.0});
            std::array<double, 1> loss{std::accumulate(losses.begin(), losses.end(), 0.0)};
            sk::all_reduce_in_place(data, sk::ReduceOp::sum, std::span<double>(loss), stream);
            if (rank.rank() == 0) {
                result.losses.push_back(loss[0] / static_cast<double>(batch * sequence));
                result.norms.push_back(norm.value());
                result.traffic = sk::traffic_table(rank.traffic());
            }
        }
    });
    return result;
}

int main(int count, char** given) try {
    const auto number = [&](int i) { return std::stoul(given[i]); };
    // tp and cp take two ranks each where they can, dp takes the rest.
    const std::size_t ranks = count > 1 ? number(1) : 8;
    const std::size_t tp = ranks % 2 == 0 ? 2 : 1;
    const std::size_t cp = ranks % 4 == 0 ? 2 : 1;
    const Mesh mesh = count > 3 ? Mesh(number(1), number(2), number(3)) : Mesh(ranks / tp / cp, tp, cp);
    std::printf("mesh %s\n", mesh.grid().describe().c_str());

    const Result all = train(mesh);
    const Result one = train(Mesh(1, 1, 1));
    bool same = true;
    for (std::size_t step = 0; step < steps; ++step) {
        same = same && std::abs(all.losses[step] - one.losses[step]) < 1e-10 &&
               std::abs(all.norms[step] - one.norms[step]) < 1e-10;
        if (step % 20 == 0 || step + 1 == steps) {
            std::printf("step %2zu  loss %.6f  gradient norm %.6f\n", step, all.losses[step], all.norms[step]);
        }
    }
    std::printf("collectives of rank 0 in a step:\n%s", all.traffic.c_str());
    const bool learned = all.losses.back() < 0.1 * all.losses.front();
    std::printf("loss fell by more than a factor of ten: %s\n", learned ? "yes" : "NO");
    std::printf("losses and gradient norms as on one rank: %s\n", same ? "yes" : "NO");
    return learned && same ? EXIT_SUCCESS : EXIT_FAILURE;
} catch (const std::exception& error) {
    std::fprintf(stderr, "3d_parallel: %s\n", error.what());
    return EXIT_FAILURE;
}
