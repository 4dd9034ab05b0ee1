// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include <shardkit/param/attributes.hpp>
#include <shardkit/param/params.hpp>
#include <shardkit/param/shapes.hpp>

#include "block_weights.hpp"
#include "config.hpp"

namespace train_gpt {

namespace sk = shardkit;

/// The model's parameters as types; T is the element type of parameters and gradients. What tp splits, it splits by
/// heads, features or rows of the vocabulary; the gradients of the rest are partial: with sequence parallelism each
/// tp rank has those of its tokens, without it the first rank adds them alone (Split::adds_whole_gradients). A
/// product overwrites the gradient of a matrix in the first microbatch, so that nobody zeroes it; a tied head adds to
/// Wte.
// clang-format off
template <class T> struct Wte : sk::Param<"wte", T, sk::dynamic, sk::dynamic>, sk::tp::Split<0>, sk::NoMatrix {};
template <class T> struct Wpe : sk::Param<"wpe", T, sk::dynamic, sk::dynamic>, sk::tp::PartialSum, sk::NoMatrix {};

template <class T> struct Norm1Weight : sk::Param<"norm1_weight", T, sk::dynamic>, sk::tp::PartialSum {};
template <class T> struct Norm1Bias : sk::Param<"norm1_bias", T, sk::dynamic>, sk::tp::PartialSum {};
template <class T> struct Norm2Weight : sk::Param<"norm2_weight", T, sk::dynamic>, sk::tp::PartialSum {};
template <class T> struct Norm2Bias : sk::Param<"norm2_bias", T, sk::dynamic>, sk::tp::PartialSum {};
template <class T> struct ProjectionBias : sk::Param<"projection_bias", T, sk::dynamic>, sk::tp::PartialSum {};
template <class T> struct DownBias : sk::Param<"down_bias", T, sk::dynamic>, sk::tp::PartialSum {};
template <class T> struct QkvWeight : sk::Param<"qkv_weight", T, sk::dynamic, sk::dynamic>, sk::tp::Split<0>, sk::OverwrittenGradient {};
template <class T> struct QkvBias : sk::Param<"qkv_bias", T, sk::dynamic>, sk::tp::Split<0> {};
template <class T> struct ProjectionWeight : sk::Param<"projection_weight", T, sk::dynamic, sk::dynamic>, sk::tp::Split<1>, sk::OverwrittenGradient {};
template <class T> struct UpWeight : sk::Param<"up_weight", T, sk::dynamic, sk::dynamic>, sk::tp::Split<0>, sk::OverwrittenGradient {};
template <class T> struct UpBias : sk::Param<"up_bias", T, sk::dynamic>, sk::tp::Split<0> {};
template <class T> struct DownWeight : sk::Param<"down_weight", T, sk::dynamic, sk::dynamic>, sk::tp::Split<1>, sk::OverwrittenGradient {};

template <class T> struct NormWeight : sk::Param<"norm_weight", T, sk::dynamic>, sk::tp::PartialSum {};
template <class T> struct NormBias : sk::Param<"norm_bias", T, sk::dynamic>, sk::tp::PartialSum {};
template <class T> struct LogitsWeight : sk::Param<"weight", T, sk::dynamic, sk::dynamic>, sk::tp::Split<0>, sk::NoMatrix, sk::OverwrittenGradient {};

template <class T> struct RouterNormWeight : sk::Param<"norm_weight", T, sk::dynamic> {};
template <class T> struct RouterNormBias : sk::Param<"norm_bias", T, sk::dynamic> {};
template <class T> struct RouterWeight : sk::Param<"router_weight", T, sk::dynamic, sk::dynamic>, sk::NoMatrix {};
template <class T> struct ExpertUp : sk::Param<"up_weight", T, sk::dynamic, sk::dynamic, sk::dynamic>, sk::ep::Split, sk::tp::Split<1> {};
template <class T> struct ExpertDown : sk::Param<"down_weight", T, sk::dynamic, sk::dynamic, sk::dynamic>, sk::ep::Split, sk::tp::Split<2> {};
// clang-format on

/// The flat-parameter groups: one for the embedding (path "embedding"), one for each block ("blocks.0", ...), one
/// for the final norm ("head"), and one for the matrix of an untied head ("logits"); a tied head has none and reads
/// the embedding's. With experts, behind these, for each block a router and its norm ("routers.0", ...) and a stack
/// of experts ("experts.0", ...).
template <class T>
using EmbeddingGroup = sk::Params<Wte<T>, Wpe<T>>;
template <class T>
using BlockGroup =
    sk::Params<Norm1Weight<T>, Norm1Bias<T>, Norm2Weight<T>, Norm2Bias<T>, ProjectionBias<T>, DownBias<T>,
               QkvWeight<T>, QkvBias<T>, ProjectionWeight<T>, UpWeight<T>, UpBias<T>, DownWeight<T>>;
template <class T>
using HeadGroup = sk::Params<NormWeight<T>, NormBias<T>>;
template <class T>
using LogitsGroup = sk::Params<LogitsWeight<T>>;
template <class T>
using RouterGroup = sk::Params<RouterNormWeight<T>, RouterNormBias<T>, RouterWeight<T>>;
template <class T>
using ExpertGroup = sk::Params<ExpertUp<T>, ExpertDown<T>>;

template <class T>
constexpr auto embedding_shapes(const ModelConfig& config) {
    return sk::Shapes<EmbeddingGroup<T>>{sk::shape<Wte<T>>(config.rows_of_vocabulary(), config.width),
                                         sk::shape<Wpe<T>>(config.sequence, config.width)};
}
template <class T>
constexpr auto block_shapes(const ModelConfig& config) {
    const std::size_t c = config.width;
    return sk::Shapes<BlockGroup<T>>{
        sk::shape<Norm1Weight<T>>(c),      sk::shape<Norm1Bias<T>>(c),      sk::shape<Norm2Weight<T>>(c),
        sk::shape<Norm2Bias<T>>(c),        sk::shape<ProjectionBias<T>>(c), sk::shape<DownBias<T>>(c),
        sk::shape<QkvWeight<T>>(3 * c, c), sk::shape<QkvBias<T>>(3 * c),    sk::shape<ProjectionWeight<T>>(c, c),
        sk::shape<UpWeight<T>>(4 * c, c),  sk::shape<UpBias<T>>(4 * c),     sk::shape<DownWeight<T>>(c, 4 * c)};
}
template <class T>
constexpr auto head_shapes(const ModelConfig& config) {
    return sk::Shapes<HeadGroup<T>>{sk::shape<NormWeight<T>>(config.width), sk::shape<NormBias<T>>(config.width)};
}
template <class T>
constexpr auto logits_shapes(const ModelConfig& config) {
    return sk::Shapes<LogitsGroup<T>>{sk::shape<LogitsWeight<T>>(config.rows_of_vocabulary(), config.width)};
}

template <class T>
constexpr auto router_shapes(const ModelConfig& config) {
    return sk::Shapes<RouterGroup<T>>{sk::shape<RouterNormWeight<T>>(config.width),
                                      sk::shape<RouterNormBias<T>>(config.width),
                                      sk::shape<RouterWeight<T>>(config.experts, config.width)};
}
template <class T>
constexpr auto expert_shapes(const ModelConfig& config) {
    return sk::Shapes<ExpertGroup<T>>{sk::shape<ExpertUp<T>>(config.experts, expert_width(config), config.width),
                                      sk::shape<ExpertDown<T>>(config.experts, config.width, expert_width(config))};
}

/// The block's raw pointers out of a window or a gradient handle: P is const T* or T*.
template <class P, class T, class View>
BlockWeights<P> block_weights(const View& view) {
    const auto of = [&](auto parameter) { return static_cast<P>(view[parameter].data()); };
    return {of(Norm1Weight<T>{}),      of(Norm1Bias<T>{}), of(Norm2Weight<T>{}), of(Norm2Bias<T>{}),
            of(ProjectionBias<T>{}),   of(DownBias<T>{}),  of(QkvWeight<T>{}),   of(QkvBias<T>{}),
            of(ProjectionWeight<T>{}), of(UpWeight<T>{}),  of(UpBias<T>{}),      of(DownWeight<T>{})};
}

}  // namespace train_gpt
