// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <shardkit/checkpoint/stored_as.hpp>
#include <shardkit/detail/fnv.hpp>
#include <shardkit/detail/list.hpp>
#include <shardkit/layout/index_range.hpp>
#include <shardkit/param/tensor_part.hpp>

namespace shardkit::detail {

/// Bytes that a rank sends to ranks of the same program.
class Parcel {
  public:
    template <class T>
    void add(const T& value) {
        static_assert(std::is_trivially_copyable_v<T>);
        bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    }
    void add_text(std::string_view text) {
        add(std::uint64_t{text.size()});
        bytes_.append(text);
    }
    std::string take() && { return std::move(bytes_); }

  private:
    std::string bytes_;
};

/// Takes a Parcel's parts out, in the order in which they were added.
class OpenedParcel {
  public:
    explicit OpenedParcel(std::string_view bytes) noexcept : left_(bytes) {}

    template <class T>
    T next() {
        std::array<std::byte, sizeof(T)> bytes;
        std::memcpy(bytes.data(), take(sizeof(T)).data(), sizeof(T));
        return std::bit_cast<T>(bytes);
    }
    std::string next_text() { return std::string(take(static_cast<std::size_t>(next<std::uint64_t>()))); }

  private:
    std::string_view take(std::size_t count) {
        const std::string_view part = left_.substr(0, count);
        left_.remove_prefix(count);
        return part;
    }

    std::string_view left_;
};

/// A parameter's values of one kind on one side of a reshard: where a checkpoint's file has them, and where each
/// rank's flat buffer does. Without what differs between the ranks of a side, which is a HeldElements.
struct BoxedTensor {
    std::size_t file = 0;     ///< number of the file
    std::size_t values = 0;   ///< number of the values among those of all groups of the side
    std::uint64_t begin = 0;  ///< first byte in the file
    std::size_t size = 0;     ///< of an element in the file
    std::size_t held = 0;     ///< of an element in a rank's memory
    IndexRange range;         ///< of a rank's part in the flat buffer
    TensorPart part;          ///< of some rank
    StoredOrder order;

    std::uint64_t end() const noexcept { return begin + order.numel() * size; }
    /// Adds what must be equal where a plan is used again.
    void add_to(Fnv& fnv) const noexcept {
        for (const std::uint64_t number :
             {std::uint64_t{file}, std::uint64_t{values}, begin, std::uint64_t{size}, std::uint64_t{held},
              std::uint64_t{range.begin}, std::uint64_t{range.end}, std::uint64_t{part.block()}, order.hash()}) {
            fnv.add(number);
        }
    }
};
static_assert(std::is_trivially_copyable_v<BoxedTensor>);

/// The elements of a flat buffer that a rank has of some values, or needs.
struct HeldElements {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    std::uint64_t tp_index = 0;
    std::uint64_t ep_index = 0;

    friend bool operator==(const HeldElements&, const HeldElements&) = default;
};

/// One side of a reshard, the same on all of its ranks.
struct Boxes {
    List<BoxedTensor> tensors;
    List<std::string> names;  ///< of the tensors, for messages
    std::size_t values = 0;   ///< number of values of all groups

    void add_to(Parcel& parcel) const {
        parcel.add(values);
        parcel.add(tensors.size());
        for (std::size_t t = 0; t < tensors.size(); ++t) {
            parcel.add(tensors[t]);
            parcel.add_text(names[t]);
        }
    }
    static Boxes of(OpenedParcel& parcel) {
        Boxes boxes;
        boxes.values = parcel.next<std::size_t>();
        for (std::size_t left = parcel.next<std::size_t>(); left > 0; --left) {
            boxes.tensors.push_back(parcel.next<BoxedTensor>());
            boxes.names.push_back(parcel.next_text());
        }
        return boxes;
    }
};

/// Elements of a rank that follow each other in a file, and lie `stride` elements apart in its flat buffer.
struct StoredRun {
    std::uint64_t at = 0;  ///< first byte in the file
    std::size_t flat = 0;
    std::size_t count = 0;
    std::size_t stride = 1;
};

/// Collects runs, and joins those that go on from each other.
class JoinedRuns {
  public:
    explicit JoinedRuns(std::size_t size) : size_(size) {}

    void add(const StoredRun& run) {
        if (!runs_.empty() && runs_.back().at + runs_.back().count * size_ == run.at) {
            StoredRun& last = runs_.back();
            const std::size_t step = last.count > 1 ? last.stride : run.flat - last.flat;
            const bool goes_on = run.flat > last.flat && last.flat + last.count * step == run.flat;
            if (goes_on && (run.count == 1 || run.stride == step)) {
                last.stride = step;
                last.count += run.count;
                return;
            }
        }
        runs_.push_back(run);
    }
    List<StoredRun> take() && { return std::move(runs_); }

  private:
    std::size_t size_;
    List<StoredRun> runs_;
};

/// Returns the runs of a tensor that a rank has or needs, in the order of the file.
inline List<StoredRun> runs_of(const BoxedTensor& tensor, const HeldElements& held) {
    JoinedRuns runs(tensor.size);
    const IndexRange flat = intersect(tensor.range, {held.begin, held.end});
    if (flat.empty()) { return std::move(runs).take(); }
    const TensorPart part = tensor.part.of(held.tp_index, held.ep_index);
    const IndexRange local = relative_to(flat, tensor.range.begin);
    const auto add = [&](std::size_t place, std::size_t index, std::size_t count, std::size_t stride) {
        runs.add({tensor.begin + place * tensor.size, tensor.range.begin + index, count, stride});
    };
    if (tensor.order.plain()) {
        part.for_each_run(local.begin, local.end,
                          [&](std::size_t i, std::size_t whole, std::size_t count) { add(whole, i, count, 1); });
        return std::move(runs).take();
    }
    const std::size_t stride = tensor.order.stride();
    const bool in_one = part.block() == part.numel();
    const std::size_t first = in_one ? part.whole_index(local.begin) : 0;
    tensor.order.for_each_run(
        0, tensor.order.numel(), [&](std::size_t place, std::size_t element, std::size_t count) {
            if (stride == 1) {
                part.for_each_run_within(
                    element, element + count, [&](std::size_t i, std::size_t whole, std::size_t run) {
                        const IndexRange own = intersect({i, i + run}, local);
                        if (own.empty()) { return; }
                        add(place + (whole - element) + (own.begin - i), own.begin, own.size(), 1);
                    });
            } else if (in_one) {
                const auto steps_to = [&](std::size_t bound) {
                    return element >= bound ? 0 : (bound - element - 1) / stride + 1;
                };
                const std::size_t begin = std::min(count, steps_to(first));
                const std::size_t end = std::min(count, steps_to(first + local.size()));
                if (begin < end) {
                    add(place + begin, local.begin + element + begin * stride - first, end - begin, stride);
                }
            } else {
                for (std::size_t k = 0; k < count; ++k) {
                    const std::size_t index = part.index_of(element + k * stride);
                    if (index >= local.begin && index < local.end) { add(place + k, index, 1, 1); }
                }
            }
        });
    return std::move(runs).take();
}

}  // namespace shardkit::detail
