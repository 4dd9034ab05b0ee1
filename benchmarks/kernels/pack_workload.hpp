// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <shardkit/backend/host/tensor_table.hpp>
#include <shardkit/rank/engine_table.hpp>

#include "engine_workload.hpp"

namespace benchmarks::kernels {

/// Where `tensors` tensors of mixed sizes begin in a flat buffer of n elements, and its end: one behind the other, in
/// turns 1, 4, 16 and 64 times as large, each at a multiple of 128 bytes. Where these are too few, tensors are empty.
inline std::vector<std::size_t> tensor_bounds(std::size_t n, std::size_t tensors, std::size_t element_bytes) {
    const auto weight = [](std::size_t before) {  // of all tensors before one
        constexpr std::size_t turn[] = {0, 1, 5, 21, 85};
        return before / 4 * turn[4] + turn[before % 4];
    };
    const std::size_t aligned = 128 / element_bytes;
    const double whole = static_cast<double>(n) / static_cast<double>(weight(tensors));
    std::vector<std::size_t> bounds;
    for (std::size_t t = 0; t < tensors; ++t) {
        bounds.push_back(static_cast<std::size_t>(whole * static_cast<double>(weight(t))) / aligned * aligned);
    }
    bounds.push_back(n);
    return bounds;
}

/// n elements of a flat buffer, and the tensors that they stand for, each in memory of its own.
template <class T>
class TensorWorkload : public EngineWorkload {
    using Base = EngineWorkload;

  public:
    std::size_t tensors() const noexcept override { return table_.size(); }

  protected:
    using Piece = shardkit::engine::TensorPiece<T>;

    TensorWorkload(shardkit::Rank& rank, std::size_t n, std::size_t tensors)
        : Base(rank), flat_(rank.template buffer<T>(n)) {
        const std::vector<std::size_t> bounds = tensor_bounds(n, tensors, sizeof(T));
        for (std::size_t t = 0; t < tensors; ++t) {
            buffers_.push_back(rank.template buffer<T>(bounds[t + 1] - bounds[t]));
            pieces_.push_back({bounds[t], bounds[t + 1], buffers_.back().data()});
        }
        pieces_ = shardkit::engine::tensor_table(std::span<const Piece>(pieces_), n);
        table_ = {rank, std::span<const Piece>(pieces_)};
    }

    std::span<const Piece> table() const { return table_.span(); }
    std::span<T> flat() const { return flat_.span(); }
    /// The tensors' memory, and where each begins in the flat buffer.
    template <class F>
    void for_each_tensor(F f) {
        for (const Piece& piece : pieces_) {
            f(std::span<T>(piece.tensor, static_cast<std::size_t>(piece.end - piece.begin)),
              static_cast<std::size_t>(piece.begin));
        }
    }

  private:
    typename Base::template Buffer<T> flat_;
    std::vector<typename Base::template Buffer<T>> buffers_;
    std::vector<Piece> pieces_;
    shardkit::detail::EngineTable<Piece> table_;
};

/// Tensors into the flat buffer.
template <class K, class T>
class Pack final : public TensorWorkload<T> {
  public:
    Pack(shardkit::Rank& rank, std::size_t n, std::size_t tensors) : TensorWorkload<T>(rank, n, tensors) {}

    void prepare() override {
        this->spoil(this->flat());
        this->for_each_tensor([&](std::span<T> tensor, std::size_t begin) { this->put_values(tensor, 0, begin); });
    }
    void once() override {
        K::template copy_tensors<shardkit::engine::TensorCopy::pack>(this->stream_, this->table(), this->flat());
    }
    std::uint64_t count_wrong() override {
        const std::vector<T> flat = this->read(std::span<const T>(this->flat()));
        return this->count(flat.size(), [&](std::size_t i) { return flat[i] == static_cast<T>(value(0, i)); });
    }
};

/// The flat buffer into the tensors.
template <class K, class T>
class Unpack final : public TensorWorkload<T> {
  public:
    Unpack(shardkit::Rank& rank, std::size_t n, std::size_t tensors) : TensorWorkload<T>(rank, n, tensors) {}

    void prepare() override {
        this->put_values(this->flat(), 0);
        this->for_each_tensor([&](std::span<T> tensor, std::size_t) { this->spoil(tensor); });
    }
    void once() override {
        K::template copy_tensors<shardkit::engine::TensorCopy::unpack>(this->stream_, this->table(), this->flat());
    }
    std::uint64_t count_wrong() override {
        std::uint64_t wrong = 0;
        this->for_each_tensor([&](std::span<T> tensor, std::size_t begin) {
            const std::vector<T> elements = this->read(std::span<const T>(tensor));
            wrong += this->count(elements.size(),
                                 [&](std::size_t i) { return elements[i] == static_cast<T>(value(0, begin + i)); });
        });
        return wrong;
    }
};

}  // namespace benchmarks::kernels
