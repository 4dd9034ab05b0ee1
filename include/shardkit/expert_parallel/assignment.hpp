// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include <shardkit/core/error.hpp>

namespace shardkit::ep {

/// Marks a row of padding, and a choice that no row has.
inline constexpr std::uint32_t no_row = std::numeric_limits<std::uint32_t>::max();

/// Puts the choices of a rank's tokens in the order in which they are sent: expert by expert, of each in the order of
/// the tokens. A choice is a pair of a token and an expert; choice t * top + k is the k-th of token t. Arithmetic of
/// the host: where an engine's memory is not the host's, copy its tables there, or make them with kernels of your
/// own.
class Assignment {
  public:
    /// `capacity`: each expert gets so many rows of this rank, which a captured graph needs. Choices past it are
    /// dropped, and rows that are left over are padding. 0: it gets the rows that there are.
    Assignment(std::size_t experts, std::size_t capacity = 0, SourceLocation where = SourceLocation::current())
        : rows_(experts), capacity_(capacity) {
        require_argument(experts != 0, where, "ep::Assignment: 0 experts given, expected at least 1");
    }

    /// Assigns the choices, whose experts are given. Allocates where there are more than ever before.
    /// @throws std::invalid_argument for an expert that there is not, or too many choices to count in 32 bits
    void assign(std::span<const std::uint32_t> chosen, SourceLocation where = SourceLocation::current()) {
        require_argument(chosen.size() < no_row, where, "ep::Assignment: ", chosen.size(),
                         " choices given, expected less than ", no_row);
        std::fill(rows_.begin(), rows_.end(), 0);
        for (std::size_t c = 0; c < chosen.size(); ++c) {
            require_argument(chosen[c] < rows_.size(), where, "ep::Assignment: choice ", c, " is expert ", chosen[c],
                             ", expected one below ", rows_.size());
            ++rows_[chosen[c]];
        }
        next_.resize(rows_.size());
        std::size_t all = 0;
        dropped_ = 0;
        for (std::size_t e = 0; e < rows_.size(); ++e) {
            next_[e] = all;
            if (capacity_ > 0) {
                dropped_ += rows_[e] > capacity_ ? rows_[e] - capacity_ : 0;
                rows_[e] = capacity_;
            }
            all += rows_[e];
        }
        row_of_.resize(chosen.size());
        choice_of_.assign(all, no_row);
        std::size_t end = 0;  // of an expert's rows; choices come in the order of tokens
        for (std::size_t c = 0; c < chosen.size(); ++c) {
            std::size_t& row = next_[chosen[c]];
            end = capacity_ > 0 ? (chosen[c] + 1) * capacity_ : all;
            row_of_[c] = row < end ? static_cast<std::uint32_t>(row) : no_row;
            if (row < end) { choice_of_[row++] = static_cast<std::uint32_t>(c); }
        }
    }

    std::size_t experts() const noexcept { return rows_.size(); }
    std::size_t capacity() const noexcept { return capacity_; }
    /// Returns the number of rows for each expert, padding included.
    std::span<const std::size_t> rows() const noexcept { return rows_; }
    /// Returns each row's choice; no_row for padding.
    std::span<const std::uint32_t> choice_of() const noexcept { return choice_of_; }
    /// Returns each choice's row; no_row for one that was dropped.
    std::span<const std::uint32_t> row_of() const noexcept { return row_of_; }
    std::size_t dropped() const noexcept { return dropped_; }

  private:
    std::vector<std::size_t> rows_;
    std::size_t capacity_;
    std::vector<std::size_t> next_;
    std::vector<std::uint32_t> choice_of_, row_of_;
    std::size_t dropped_ = 0;
};

}  // namespace shardkit::ep
