// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <utility>

#include <shardkit/backend/cuda/owned_bytes.hpp>
#include <shardkit/backend/cuda/stream.hpp>

/// Owned bytes as elements.
template <class T>
class TypedBytes {
  public:
    TypedBytes() = default;
    explicit TypedBytes(shardkit::gpu::detail::OwnedBytes bytes) : bytes_(std::move(bytes)) {}

    T* data() const { return reinterpret_cast<T*>(bytes_.data()); }
    std::size_t size() const { return bytes_.size() / sizeof(T); }
    std::span<T> span() const { return {data(), size()}; }

  private:
    shardkit::gpu::detail::OwnedBytes bytes_;
};
template <class T>
TypedBytes<T> on_device(std::size_t size, shardkit::gpu::StreamRef stream) {
    return TypedBytes<T>(shardkit::gpu::detail::device_bytes(size * sizeof(T), stream));
}
template <class T>
TypedBytes<T> pinned(std::size_t size) {
    return TypedBytes<T>(shardkit::gpu::detail::pinned_bytes(size * sizeof(T)));
}
