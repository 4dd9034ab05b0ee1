// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include <shardkit/core/error.hpp>
#include <shardkit/detail/concat.hpp>

namespace shardkit::tp {

/// The rows of an embedding, or columns of the logits, that one rank of tp holds: [first, first + size) of a
/// vocabulary padded to a multiple of tp. Padded entries are no token; their logits count as minus infinity.
struct VocabularyPart {
    std::size_t vocabulary = 0;  ///< without the padding
    std::size_t first = 0;
    std::size_t size = 0;

    /// Returns part `index` of `parts` of `padded` rows.
    /// @throws std::invalid_argument unless `parts` divides `padded` and vocabulary <= padded
    static VocabularyPart of(std::size_t vocabulary, std::size_t padded, std::size_t parts, std::size_t index,
                             SourceLocation where = SourceLocation::current()) {
        require_argument(padded % parts == 0 && padded >= vocabulary, where, "VocabularyPart: a vocabulary of ",
                         vocabulary, " padded to ", padded, " over tp = ", parts, ", expected a multiple of ", parts,
                         " that is no less than the vocabulary");
        return {vocabulary, padded / parts * index, padded / parts};
    }

    constexpr bool contains(std::size_t token) const noexcept { return token >= first && token - first < size; }
    /// Returns the number of entries of the part that are not padding.
    constexpr std::size_t used() const noexcept {
        return vocabulary <= first ? 0 : vocabulary - first < size ? vocabulary - first : size;
    }
};

}  // namespace shardkit::tp
