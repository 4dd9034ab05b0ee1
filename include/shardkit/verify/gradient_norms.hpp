// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/detail/not_compiled.inc>

#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <shardkit/kernels/norm_sum.hpp>
#include <shardkit/spi/groups.hpp>
#include <shardkit/spi/optimizers.hpp>
#include <shardkit/step/model.hpp>
#include <shardkit/step/reduce.hpp>
#include <shardkit/verbs/all_reduce.hpp>
#include <shardkit/verify/verify.hpp>

namespace shardkit::detail SHARDKIT_FACE {

SHARDKIT_CORE_INLINE GradientNorms gradient_norms(const Reduced& reduced, SourceLocation where) {
    const Model& groups = reduced.groups(where);
    auto& rank = detail::rank_of(groups, where);
    auto& memory = NormMemory::begin(rank);
    for (Group& group : spi::groups(groups, where)) { memory.add_updates(group.statements().updates()); }
    const std::span<const PartialNorms> own = partial_norms(reduced, memory, where);
    std::vector<PartialNorms> norms(own.size());
    host::AnyKernels::copy_out(rank.compute_stream(), own, std::span<PartialNorms>(norms));

    // Sums and the largest apart, as they travel.
    auto numbers = rank.buffer<double>(3 * norms.size());
    const std::span<double> squares = numbers.span().first(norms.size());
    const std::span<double> largest = numbers.span().subspan(norms.size());
    std::vector<double> host(numbers.size());
    for (std::size_t i = 0; i < norms.size(); ++i) {
        host[i] = norms[i].squares;
        host[norms.size() + i] = norms[i].largest;
        host[2 * norms.size() + i] = norms[i].nan;
    }
    const auto stream = rank.compute_stream();
    host::AnyKernels::copy_in(stream, std::span<const double>(host), numbers.span());
    const engine::CallSite site{where, memory.subject(), memory.stated(reduced.stated().gradients_hash())};
    const auto reduction = rank.reduction_stream();
    reduction.wait(stream.record());
    all_reduce_span(rank.world(), TreelessOp(ReduceOp::sum), squares, reduction, site);
    all_reduce_span(rank.world(), TreelessOp(ReduceOp::max), largest, reduction, site);
    stream.wait(reduction.record());
    host::AnyKernels::copy_out(stream, std::span<const double>(numbers.span()), std::span<double>(host));

    const auto named = [](const PartialNorms& of, std::string path, std::string parameter) {
        return GradientNorm{std::move(path), std::move(parameter), std::sqrt(of.squares),
                            of.nan > 0 ? std::numeric_limits<double>::quiet_NaN() : of.largest};
    };
    GradientNorms made;
    PartialNorms of_model;
    std::size_t next = 0;
    for (Group& group : spi::groups(groups, where)) {
        PartialNorms of_group;
        for (const PlacedParameter& parameter : group.geometry().parameters) {
            const std::size_t i = next++;
            if (!group.trainable() || parameter.frozen) { continue; }
            PartialNorms its;
            its.squares = host[i];
            its.largest = host[norms.size() + i];
            its.nan = host[2 * norms.size() + i];
            of_group.add(its);
            made.parameters.push_back(named(its, group.path(), std::string(parameter.name)));
        }
        if (!group.trainable()) { continue; }
        of_model.add(of_group);
        made.groups.push_back(named(of_group, group.path(), {}));
    }
    made.model = named(of_model, {}, {});
    return made;
}

}  // namespace shardkit::detail SHARDKIT_FACE
