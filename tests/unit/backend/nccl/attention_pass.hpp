// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstddef>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <shardkit/backend/threads/run.hpp>
#include <shardkit/context_parallel/attention.hpp>
#include <shardkit/context_parallel/gather_exchange.hpp>
#include <shardkit/mesh/device_mesh.hpp>

#include "paced_ranks.hpp"

/// Attention over cp, forward and backward and again, on every engine; the host waits once, at the end.
namespace attention_pass {

namespace sk = shardkit;
using Mesh = sk::DeviceMesh<sk::dynamic, sk::dynamic, sk::dynamic>;

template <class Rank, template <class> class Exchange>
std::vector<float> run(Rank& rank) {
    const auto cp = rank.template sub_mesh<sk::Axes<sk::Cp>>();
    const sk::cp::AttentionShape shape{1, 2, 4, 3};
    const auto numbers = [&](std::size_t seed, std::size_t n) {
        std::vector<float> values(n);
        for (std::size_t i = 0; i < n; ++i) {
            values[i] = std::sin(static_cast<float>(seed * 31 + cp.rank() * 7 + i));
        }
        return sk::detail::EngineTable<float>(rank, std::span<const float>(values));
    };
    const auto q = numbers(1, shape.queries());
    const auto kv = numbers(2, shape.block());
    const auto out = numbers(3, shape.queries());
    const auto lse = numbers(4, shape.rows());
    const auto dq = numbers(5, shape.queries());
    const auto dkv = numbers(6, shape.block());
    const auto read = [](const auto& table) { return std::span<const float>(table.span()); };
    sk::cp::Attention<float, Exchange> attention(rank, cp, shape);
    for (int pass = 0; pass < 2; ++pass) {
        attention.forward(read(q), read(kv), out.span(), lse.span());
        // No sense, but work whose result the exchange has to wait for.
        sk::host::AnyKernels::accumulate(rank.compute_stream(), read(kv), kv.span());
        attention.backward(read(q), read(kv), read(out), read(lse), read(out), dq.span(), dkv.span());
        // Later work may write what was sent.
        sk::host::AnyKernels::accumulate(rank.compute_stream(), read(dkv), kv.span());
        sk::host::AnyKernels::accumulate(rank.compute_stream(), read(dq), q.span());
    }
    std::vector<float> all(out.size() + lse.size() + dq.size() + dkv.size());
    std::size_t at = 0;
    const auto append = [&](const auto& table) {
        sk::host::AnyKernels::copy_out(rank.compute_stream(), read(table), std::span(all).subspan(at, table.size()));
        at += table.size();
    };
    append(out);
    append(lse);
    append(dq);
    append(dkv);
    rank.communication_stream().synchronize();
    return all;
}

/// Where the NCCL engine gives other bits than threads, at any pace of its streams; empty where it does not.
template <template <class> class Exchange>
std::string difference(std::size_t cp) {
    const Mesh mesh(1, 1, cp);
    std::vector<std::vector<float>> expected(cp);
    sk::threads::run(
        mesh, [&](auto& rank) { expected[rank.rank()] = run<std::remove_cvref_t<decltype(rank)>, Exchange>(rank); });
    for (const paced_ranks::Paces paces : paced_ranks::some_paces()) {
        std::vector<std::vector<float>> given(cp);
        std::string wrong = paced_ranks::run(mesh, paces, {}, [&](auto& rank, const auto&) {
            given[rank.rank()] = run<std::remove_cvref_t<decltype(rank)>, Exchange>(rank);
        });
        if (wrong.empty() && given != expected) { wrong = "other bits than on threads"; }
        if (!wrong.empty()) { return wrong; }
    }
    return {};
}

}  // namespace attention_pass
