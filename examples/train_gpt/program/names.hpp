// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <shardkit/checkpoint/stored_as.hpp>

#include "../model/config.hpp"

namespace train_gpt {

namespace sk = shardkit;  // in all that includes it: options, and with them the program

/// How files call the parameters: "blocks.0.up_weight", as the model does, or as GPT2LMHeadModel of transformers.
enum class NameKind : std::uint8_t { shardkit, gpt2 };
inline constexpr std::array<std::string_view, 2> name_kinds{"shardkit", "gpt2"};
/// Under which a save tells them.
inline constexpr std::string_view names_key = "--names";

/// What files of GPT-2 have before every name but the head's, or leave out.
inline constexpr std::string_view gpt2_prefix = "transformer.";
inline constexpr std::string_view gpt2_head = "lm_head.weight";

/// A parameter of the model and its tensor in a file of GPT-2.
struct Gpt2Tensor {
    /// `transposed` is Conv1D's [in, out]. `packed` is too, and outputs are [query | key | value][heads, head_width]
    /// there, but [heads][query | key | value][head_width] here: see AttentionShape.
    enum class Form : std::uint8_t { as_it_is, transposed, packed };
    std::string_view parameter;
    std::string_view name;
    Form form = Form::as_it_is;
};
inline constexpr std::array<Gpt2Tensor, 2> gpt2_embedding{{{"wte", "wte.weight"}, {"wpe", "wpe.weight"}}};
/// Behind "h.N.".
inline constexpr std::array<Gpt2Tensor, 12> gpt2_block{{
    {"norm1_weight", "ln_1.weight"},
    {"norm1_bias", "ln_1.bias"},
    {"norm2_weight", "ln_2.weight"},
    {"norm2_bias", "ln_2.bias"},
    {"qkv_weight", "attn.c_attn.weight", Gpt2Tensor::Form::packed},
    {"qkv_bias", "attn.c_attn.bias", Gpt2Tensor::Form::packed},
    {"projection_weight", "attn.c_proj.weight", Gpt2Tensor::Form::transposed},
    {"projection_bias", "attn.c_proj.bias"},
    {"up_weight", "mlp.c_fc.weight", Gpt2Tensor::Form::transposed},
    {"up_bias", "mlp.c_fc.bias"},
    {"down_weight", "mlp.c_proj.weight", Gpt2Tensor::Form::transposed},
    {"down_bias", "mlp.c_proj.bias"},
}};
inline constexpr std::array<Gpt2Tensor, 2> gpt2_final_norm{{
    {"norm_weight", "ln_f.weight"},
    {"norm_bias", "ln_f.bias"},
}};

/// Causal masks that older files hold beside the parameters of block N, as if they were some.
inline constexpr std::array<std::string_view, 2> gpt2_buffers{"attn.bias", "attn.masked_bias"};

/// f(name) for every tensor that a file of the whole model has.
template <class F>
void for_each_gpt2_name(const ModelConfig& config, std::string_view prefix, F f) {
    const std::string before(prefix);
    for (const Gpt2Tensor& tensor : gpt2_embedding) { f(before + std::string(tensor.name)); }
    for (std::size_t l = 0; l < config.layers; ++l) {
        for (const Gpt2Tensor& tensor : gpt2_block) {
            f(before + "h." + std::to_string(l) + "." + std::string(tensor.name));
        }
    }
    for (const Gpt2Tensor& tensor : gpt2_final_norm) { f(before + std::string(tensor.name)); }
    if (config.head == HeadKind::untied) { f(std::string(gpt2_head)); }
}

/// A matrix with a row for each token, without the rows that pad the vocabulary.
inline sk::checkpoint::StoredAs stored_tokens(std::string name, const ModelConfig& config,
                                              const sk::TensorShape& shape) {
    const std::size_t padding = config.rows_of_vocabulary() - config.vocabulary;
    return padding == 0 ? sk::checkpoint::stored(std::move(name), shape)
                        : sk::checkpoint::stored_without_padding(std::move(name), shape, padding);
}
/// The parameter `parameter` of the group at `path`, as files of GPT-2 hold it.
inline sk::checkpoint::StoredAs stored_as_gpt2(const ModelConfig& config, std::string_view prefix,
                                               std::string_view path, const sk::ParameterRecord& parameter) {
    const std::size_t heads = config.heads;
    if (path == "logits") { return stored_tokens(std::string(gpt2_head), config, parameter.shape); }
    const auto find = [&](std::string before, const auto& tensors) {
        before.insert(0, prefix);
        for (const Gpt2Tensor& tensor : tensors) {
            if (tensor.parameter != parameter.name) { continue; }
            std::string name = before + std::string(tensor.name);
            if (tensor.parameter == "wte") { return stored_tokens(std::move(name), config, parameter.shape); }
            if (tensor.form == Gpt2Tensor::Form::as_it_is) {
                return sk::checkpoint::stored(std::move(name), parameter.shape);
            }
            if (tensor.form == Gpt2Tensor::Form::transposed) {
                return sk::checkpoint::stored_transposed(std::move(name), parameter.shape);
            }
            const std::size_t outputs = parameter.shape.extents[0];
            const std::size_t head_width = outputs / (3 * heads);
            if (parameter.shape.rank == 1) {
                return sk::checkpoint::StoredAs{std::move(name), {outputs}, {heads, 3, head_width}, {1, 0, 2}};
            }
            const std::size_t inputs = parameter.shape.extents[1];
            return sk::checkpoint::StoredAs{
                std::move(name), {inputs, outputs}, {heads, 3, head_width, inputs}, {3, 1, 0, 2}};
        }
        throw std::logic_error("no tensor of GPT-2 for '" + std::string(path) + "' parameter '" +
                               std::string(parameter.name) + "'");
    };
    if (path == "embedding") { return find("", gpt2_embedding); }
    if (path == "head") { return find("", gpt2_final_norm); }
    return find("h." + std::string(path.substr(std::string_view("blocks.").size())) + ".", gpt2_block);
}

/// Names and forms of the model's parameters in files.
inline sk::checkpoint::TensorNames tensor_names(NameKind kind, const ModelConfig& config,
                                                std::string prefix = std::string(gpt2_prefix)) {
    if (kind == NameKind::shardkit) {
        return [config](std::string_view path, const sk::ParameterRecord& parameter) {
            sk::checkpoint::StoredAs stored = sk::checkpoint::stored_by_path(path, parameter);
            const bool of_tokens = parameter.name == "wte" || path == "logits";
            return of_tokens ? stored_tokens(stored.name, config, parameter.shape) : stored;
        };
    }
    return [config, prefix = std::move(prefix)](std::string_view path, const sk::ParameterRecord& parameter) {
        return stored_as_gpt2(config, prefix, path, parameter);
    };
}

}  // namespace train_gpt
