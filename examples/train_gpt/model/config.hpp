// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <string_view>

namespace train_gpt {

/// A byte of a text, or a number that a tokenizer gives.
using Token = std::uint16_t;
inline constexpr std::size_t most_tokens = std::numeric_limits<Token>::max() + std::size_t{1};
inline constexpr std::size_t bytes_vocabulary = 256;
inline constexpr std::size_t gpt2_vocabulary = 50'257;

/// Where the matrix that makes logits comes from: the token embedding again, or a parameter of its own.
enum class HeadKind : std::uint8_t { tied, untied };

/// The shape of the model. Every extent counts elements.
struct ModelConfig {
    std::size_t sequence = 64;
    std::size_t layers = 4;
    std::size_t width = 128;
    std::size_t heads = 4;
    HeadKind head = HeadKind::tied;
    std::size_t experts = 0;   // of the layer behind each block; 0: there is none
    std::size_t top = 2;       // experts of a token
    std::size_t capacity = 0;  // rows of a pass for each expert; 0: as many as there are
    std::size_t vocabulary = bytes_vocabulary;
    bool recompute = false;  // what blocks need of their forward pass is made again for the backward pass, not kept

    constexpr std::size_t head_width() const noexcept { return width / heads; }
    /// Rows of the token embedding, and of the head's matrix: those behind the vocabulary's are zero and stay so.
    /// They make products fast, and tp can divide them.
    constexpr std::size_t rows_of_vocabulary() const noexcept { return (vocabulary + 127) / 128 * 128; }
};

/// GPT-2 in three of its sizes.
inline constexpr std::array<std::string_view, 3> model_names{"124M", "350M", "1.5B"};
inline constexpr std::array<ModelConfig, 3> models{{
    {1024, 12, 768, 12, HeadKind::tied, 0, 2, 0, gpt2_vocabulary},
    {1024, 24, 1024, 16, HeadKind::tied, 0, 2, 0, gpt2_vocabulary},
    {1024, 48, 1600, 25, HeadKind::tied, 0, 2, 0, gpt2_vocabulary},
}};

/// The inner width of an expert.
constexpr std::size_t expert_width(const ModelConfig& config) noexcept { return 2 * config.width; }

/// The rows that a rank sends to experts in a pass of so many tokens, and gets if all get as many.
constexpr std::size_t rows_of_experts(const ModelConfig& config, std::size_t tokens) noexcept {
    return config.capacity > 0 ? config.experts * config.capacity : tokens * config.top;
}

/// How many tokens one pass works on: `batch` sequences of `sequence` tokens.
struct BatchShape {
    std::size_t batch = 1;
    std::size_t sequence = 1;

    constexpr std::size_t tokens() const noexcept { return batch * sequence; }
};

/// a * b.
/// @throws std::invalid_argument that names `what` when the product does not fit std::size_t
constexpr std::size_t checked_product(std::size_t a, std::size_t b, const char* what) {
    if (a != 0 && b > std::numeric_limits<std::size_t>::max() / a) {
        throw std::invalid_argument(std::string(what) + ": " + std::to_string(a) + " x " + std::to_string(b) +
                                    " overflows 64 bits");
    }
    return a * b;
}

/// Refuses a shape that no model has.
/// @pre   no extent is 0
/// @throws std::invalid_argument that names the extent, what was given and what was expected
inline void validate(const ModelConfig& config, std::size_t sequences_per_pass) {
    // The matrix products take 32-bit extents; the widest matrix has 4 * width columns.
    constexpr std::size_t limit = std::numeric_limits<std::int32_t>::max();
    const auto at_most = [](const char* flag, std::size_t value, std::size_t bound) {
        if (value > bound) {
            throw std::invalid_argument(std::string(flag) + " " + std::to_string(value) + ": expected at most " +
                                        std::to_string(bound) + " (a larger extent overflows a matrix product's)");
        }
    };
    at_most("--width", config.width, limit / 4);
    at_most("--sequence", config.sequence, limit);
    at_most("--layers", config.layers, limit);
    if (config.width % config.heads != 0) {
        throw std::invalid_argument("--heads " + std::to_string(config.heads) + ": expected a divisor of --width " +
                                    std::to_string(config.width));
    }
    const std::size_t tokens = checked_product(sequences_per_pass, config.sequence, "sequences x --sequence");
    if (tokens > limit) {
        throw std::invalid_argument(std::to_string(sequences_per_pass) + " sequences of " +
                                    std::to_string(config.sequence) + " tokens in one pass: expected at most " +
                                    std::to_string(limit) + " tokens; raise --microbatches");
    }
    // Bytes stay countable too: no buffer of a rank holds more than 64 bytes for each of these elements.
    const auto countable = [](const std::string& what, const std::string& given, std::size_t a, std::size_t b,
                              std::size_t c) {
        constexpr std::size_t most = std::numeric_limits<std::size_t>::max() / 64;
        if (b > most / a || c > most / (a * b)) {
            throw std::invalid_argument(given + ": expected less, the bytes of " + what + " overflow 64 bits");
        }
    };
    const std::string width = "--width " + std::to_string(config.width);
    const std::string layers = "--layers " + std::to_string(config.layers);
    const std::string sequence = "--sequence " + std::to_string(config.sequence);
    const std::string pass = std::to_string(tokens) + " tokens in one pass";
    countable("parameters", width + " and " + layers, 12 * config.width, config.width, config.layers);
    countable("embeddings", sequence + " and " + width, config.rows_of_vocabulary() + config.sequence, config.width,
              1);
    countable("activations", pass + ", " + width + " and " + layers, tokens, config.width, config.layers);
    if (config.experts > 0) {
        const std::size_t rows = config.capacity > 0
                                     ? checked_product(config.experts, config.capacity, "--experts x --capacity")
                                     : checked_product(tokens, config.top, "tokens of a pass x --top");
        if (rows > limit) {
            throw std::invalid_argument(std::to_string(rows) + " rows of experts in one pass: expected at most " +
                                        std::to_string(limit) + "; raise --microbatches or lower --capacity");
        }
        countable("rows of experts", width + " and " + layers, rows, config.width, config.layers);
    }
    countable("attention scores", sequence, config.sequence, config.sequence, 1);
}

}  // namespace train_gpt
