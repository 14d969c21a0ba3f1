#include "baton/cuda/attention_groups.cuh"
#include "baton/cuda/programmatic.cuh"

/// The two passes of attention_backward.cu by warp groups; the one over queries is first, and leaves their sums to the other. A
/// block takes one tile of rows after another; a warp of its own copies what the others multiply, as far ahead as there is room.
/// While gradients of a tile are added, its warp group takes the exponentials of the next one, whose scores were multiplied before.
namespace baton::cuda {
namespace {

constexpr int threads = (groups + 1) * group_threads;  // the last group copies, by one thread
// The registers of a multiprocessor, shared out.
constexpr int copying_registers = 24;
constexpr int multiplying_registers = 240;

template <int Halves, bool OverKeys>
struct Memory {
  static constexpr int stages = Halves == 1 ? 6 : 4;
  static constexpr int own_tiles = OverKeys ? 2 : 3;
  static constexpr int own_bytes = Halves * half_own_bytes;
  static constexpr int tile_bytes = Halves * half_tile_bytes;
  static constexpr int stage_bytes = 2 * tile_bytes;
  static constexpr int pair_bytes = OverKeys ? tile_rows * static_cast<int>(sizeof(float2))
                                             : 0;  // bytes of the sums of a tile's rows
  static constexpr int barriers = 2 * stages + 2;
  static constexpr int bytes = own_tiles * own_bytes + stages * (stage_bytes + pair_bytes) + barriers * barrier_bytes + alignment;

  std::uint32_t base;

  __device__ std::uint32_t own() const { return base; }                     // k, or q
  __device__ std::uint32_t other_own() const { return base + own_bytes; }   // v, or dy
  __device__ std::uint32_t result() const { return base + 2 * own_bytes; }  // o, in the pass over queries
  __device__ std::uint32_t passing(int stage) const {                       // q, or k
    return base + static_cast<std::uint32_t>(own_tiles * own_bytes + stage * stage_bytes);
  }
  __device__ std::uint32_t other_passing(int stage) const { return passing(stage) + tile_bytes; }  // dy, or v
  __device__ std::uint32_t pairs(int stage) const { return passing(stages) + static_cast<std::uint32_t>(stage * pair_bytes); }
  __device__ std::uint32_t barrier(int i) const { return pairs(stages) + static_cast<std::uint32_t>(i * barrier_bytes); }
  __device__ std::uint32_t filled(int stage) const { return barrier(stage); }
  __device__ std::uint32_t emptied(int stage) const { return barrier(stages + stage); }
  __device__ std::uint32_t own_filled() const { return barrier(2 * stages); }
  __device__ std::uint32_t own_emptied() const { return barrier(2 * stages + 1); }
};

/// The work of a block on one tile of rows.
struct Item {
  int row;         // the first one
  int head;        // a head of keys in the pass over keys, otherwise of queries
  int first_tile;  // the first of the tiles that go by
  int tiles;       // per head of queries
};

/// The items of a block, those with the most tiles first. Blocks take turns forwards and backwards, so that none has the longer
/// ones of all turns.
template <bool OverKeys>
struct Items {
  const AttentionShape& shape;
  const TileOrder& order;
  int turn = 0;

  __device__ bool next(Item& item) {
    const int blocks = static_cast<int>(gridDim.x);
    const int block = static_cast<int>(blockIdx.x);
    const int i = turn * blocks + (turn % 2 == 0 ? block : blocks - 1 - block);
    ++turn;
    if (i >= order.items()) {
      return false;
    }
    int row_block = 0;
    order.find(i, item.head, row_block);
    if (!OverKeys) {
      row_block = order.row_blocks - 1 - row_block;
    }
    const int positions = static_cast<int>(shape.positions);
    item.row = row_block * own_rows;
    const int all_tiles = (positions + tile_rows - 1) / tile_rows;
    item.first_tile = OverKeys && shape.causal ? item.row / tile_rows : 0;
    item.tiles = (!OverKeys && shape.causal ? min(all_tiles, (item.row + own_rows) / tile_rows) : all_tiles) - item.first_tile;
    return true;
  }
};

template <int Halves, bool OverKeys>
__device__ void copy_all(const Tensors& tensors, const float2* row_sums, const AttentionShape& shape, const Strides& strides,
                         const TileOrder& order, Memory<Halves, OverKeys> memory) {
  using M = Memory<Halves, OverKeys>;
  const int heads = OverKeys ? static_cast<int>(shape.heads) : 1;
  Items<OverKeys> items{shape, order};
  Item item;
  RingPlace<M::stages> place;
  std::uint32_t own_parity = 0;
  while (items.next(item)) {
    await_phase(memory.own_emptied(), own_parity ^ 1);
    own_parity ^= 1;
    arrive_and_announce(memory.own_filled(), M::own_tiles * M::own_bytes);
#pragma unroll
    for (int half = 0; half < Halves; ++half) {
#pragma unroll
      for (int group = 0; group < groups; ++group) {
        const auto at = static_cast<std::uint32_t>(half * half_own_bytes + group * half_tile_bytes);
        const int position = item.row + group * group_rows;
        copy_box(memory.own() + at, tensors.own, half * half_size, item.head, position, memory.own_filled());
        copy_box(memory.other_own() + at, tensors.other_own, half * half_size, item.head, position, memory.own_filled());
        if constexpr (!OverKeys) {
          copy_box(memory.result() + at, tensors.result, half * half_size, item.head, position, memory.own_filled());
        }
      }
    }
    for (int head = 0; head < heads; ++head) {
      // In the pass over queries heads of keys go by, which several of queries share.
      const int passing_head = OverKeys ? item.head * heads + head : item.head / static_cast<int>(shape.heads);
      for (int tile = 0; tile < item.tiles; ++tile) {
        const int first = (item.first_tile + tile) * tile_rows;
        const std::uint32_t filled = memory.filled(place.stage);
        await_phase(memory.emptied(place.stage), place.parity ^ 1);
        arrive_and_announce(filled, M::stage_bytes + M::pair_bytes);
#pragma unroll
        for (int half = 0; half < Halves; ++half) {
          const auto at = static_cast<std::uint32_t>(half * half_tile_bytes);
          copy_box(memory.passing(place.stage) + at, tensors.passing, half * half_size, passing_head, first, filled);
          copy_box(memory.other_passing(place.stage) + at, tensors.other_passing, half * half_size, passing_head, first, filled);
        }
        if constexpr (OverKeys) {
          copy_line(memory.pairs(place.stage), row_sums + passing_head * strides.row_sums + first, M::pair_bytes, filled);
        }
        place.advance();
      }
    }
  }
}

template <typename Element>
__device__ float2 pair_in(std::uint32_t bits) {
  if constexpr (std::is_same_v<Element, __half>) {
    return __half22float2(*reinterpret_cast<const __half2*>(&bits));
  } else {
    return __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(&bits));
  }
}

/// The tiles that go by, as a warp group sees them: those that its rows need.
template <int Halves, bool OverKeys>
struct Passing {
  using M = Memory<Halves, OverKeys>;
  M memory;
  RingPlace<M::stages> place;
  int tile = 0;  // the number of the tile in the head
  int head = 0;
  int needed_first = 0;
  int needed_last = 0;

  /// Moves on to the first tile that is needed, from here. Returns false if there is none.
  __device__ bool seek(const Item& item, int heads) {
    while (head < heads && (tile < needed_first || tile >= needed_last)) {
      await_phase(memory.filled(place.stage), place.parity);
      release(place.stage);
      advance(item);
    }
    return head < heads;
  }
  __device__ void advance(const Item& item) {
    place.advance();
    if (++tile == item.tiles) {
      tile = 0;
      ++head;
    }
  }
  __device__ void release(int stage) const {
    __syncwarp();
    if (threadIdx.x % 32 == 0) {
      arrive(memory.emptied(stage));
    }
  }
};

/// Adds Σ dy · o to the sums of a warp's rows.
template <typename Element, int Halves>
__device__ void add_product(float2 (&of_rows)[2], const GroupRows<Element, Halves, true>& dy, std::uint32_t result_tile) {
#pragma unroll
  for (int half = 0; half < Halves; ++half) {
#pragma unroll
    for (int step = 0; step < steps; ++step) {
      std::uint32_t o[4];
      load_left<Element, half_size>(o, result_tile + half * half_own_bytes, static_cast<int>(threadIdx.x) / 32 * 16, step);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float2 left = pair_in<Element>(dy.fragments[half][step][i]);
        const float2 right = pair_in<Element>(o[i]);
        of_rows[i % 2].y += left.x * right.x + left.y * right.y;
      }
    }
  }
#pragma unroll
  for (float2& row : of_rows) {
    row.y += __shfl_xor_sync(0xffffffffU, row.y, 1);
    row.y += __shfl_xor_sync(0xffffffffU, row.y, 2);
  }
}

template <typename Element, int Halves, bool OverKeys>
__device__ void multiply_all(const AttentionGradients& given, float2* row_sums, const AttentionShape& shape, const Strides& strides,
                             const TileOrder& order, Memory<Halves, OverKeys> memory, const unsigned char* shared) {
  using M = Memory<Halves, OverKeys>;
  const int positions = static_cast<int>(shape.positions);
  const int size = static_cast<int>(shape.size);
  const int heads = OverKeys ? static_cast<int>(shape.heads) : 1;
  const std::int64_t all_heads = shape.samples * shape.groups * shape.heads;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int group = __shfl_sync(0xffffffffU, warp / 4, 0);  // known to be the same for all lanes
  const float scale = rsqrtf(static_cast<float>(size));
  const float scale_2 = scale * log2_e;
  const auto* pairs = reinterpret_cast<const float2*>(shared + (memory.pairs(0) - shared_address_of(shared)));
  const auto of_column = [&](int stage, int n, int e) { return pairs[stage * tile_rows + 8 * n + 2 * (lane % 4) + e % 2]; };
  constexpr bool in_registers = Halves == 1 || !OverKeys;
  constexpr bool values_apart = OverKeys && Halves == 2;  // dv is added at once: there are no registers for both kinds of shares

  Items<OverKeys> items{shape, order};
  Item item;
  Passing<Halves, OverKeys> passing{memory};
  std::uint32_t own_parity = 0;
  while (items.next(item)) {
    const int group_row = item.row + group * group_rows;
    const int warp_row = item.row + 16 * warp;
    const int own_tile = group_row / tile_rows;
    passing.tile = 0;
    passing.head = 0;
    passing.needed_first = OverKeys && shape.causal ? own_tile - item.first_tile : 0;
    passing.needed_last = group_row >= positions ? 0 : !OverKeys && shape.causal ? min(item.tiles, own_tile + 1) : item.tiles;

    float2 of_rows[2] = {};  // the rows l / 4 and l / 4 + 8
    if constexpr (!OverKeys) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const std::int64_t position = warp_row + lane / 4 + 8 * half;
        of_rows[half].x = position < positions ? given.lse[position * all_heads + item.head] * log2_e : INFINITY;
      }
    }
    GroupRows<Element, Halves, in_registers> row;
    GroupRows<Element, Halves, in_registers> other_row;
    await_phase(memory.own_filled(), own_parity);
    own_parity ^= 1;
    row.take(memory.own());
    other_row.take(memory.other_own());
    if constexpr (!OverKeys) {
      add_product<Element>(of_rows, other_row, memory.result());
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int position = warp_row + lane / 4 + 8 * half;
        if (lane % 4 == 0 && position < strides.row_sums) {
          row_sums[item.head * strides.row_sums + position] = of_rows[half];
        }
      }
    }
    Sums gradient[Halves] = {};                       // dq, or dk
    Sums value_gradient[OverKeys ? Halves : 1] = {};  // dv
    Sums shares;                                      // first the scores, then what softmax makes of them
    Sums slopes;                                      // first the gradient of the shares, then that of the scores
    Fragments share;
    Fragments slope;
    /// After products of the rows are done: a load of fragments is certain to be over only after its first use.
    const auto release_own = [&] {
      __syncwarp();
      if (lane == 0) {
        arrive(memory.own_emptied());
      }
    };
    int stage = 0;
    int first_column = 0;
    const auto enter = [&] {  // a tile that has been sought
      stage = passing.place.stage;
      first_column = (item.first_tile + passing.tile) * tile_rows;
      await_phase(memory.filled(stage), passing.place.parity);
    };
    const auto take_shares = [&] {
      if (OverKeys ? shape.causal && first_column == group_row
                   : first_column + tile_rows > positions || (shape.causal && first_column == group_row)) {
#pragma unroll
        for (int n = 0; n < sum_tiles; ++n) {
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            const int column = first_column + 8 * n + 2 * (lane % 4) + e % 2;
            const int own_position = warp_row + lane / 4 + e / 2 * 8;
            const int key = OverKeys ? own_position : column;
            const int query = OverKeys ? column : own_position;
            if ((!OverKeys && key >= positions) || (shape.causal && key > query)) {
              shares[n][e] = -INFINITY;
            }
          }
        }
      }
#pragma unroll
      for (int n = 0; n < sum_tiles; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const float offset = OverKeys ? of_column(stage, n, e).x : of_rows[e / 2].x;
          shares[n][e] = power_of_2(shares[n][e] * scale_2 - offset);
        }
      }
    };
    const auto take_slopes = [&] {
#pragma unroll
      for (int n = 0; n < sum_tiles; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const float along = OverKeys ? of_column(stage, n, e).y : of_rows[e / 2].y;
          slopes[n][e] = shares[n][e] * (slopes[n][e] - along);
        }
      }
      if constexpr (OverKeys && !values_apart) {
        fragments_of<Element>(share, shares);
      }
      fragments_of<Element>(slope, slopes);
      if constexpr (values_apart) {
        await_products<0>();
      }
    };
    /// After the shares were taken: returns when the gradient of the shares is there.
    const auto await_slopes = [&] {
      finish_first(shares);
      if constexpr (values_apart) {
        fragments_of<Element>(share, shares);
        begin_products();
        add_rows<Element>(value_gradient, share, memory.other_passing(stage));
        end_products();
        await_products<1>();
      } else {
        await_products<0>();
      }
      settle(slopes);
    };
    const auto add_gradients = [&](int of_stage) {
      if constexpr (OverKeys && !values_apart) {
        add_rows<Element>(value_gradient, share, memory.other_passing(of_stage));
      }
      add_rows<Element>(gradient, slope, memory.passing(of_stage));
      end_products();
    };
    if (passing.seek(item, heads)) {
      enter();
      begin_products();
      row.multiply(shares, memory.passing(stage));
      end_products();
      other_row.multiply(slopes, memory.other_passing(stage));
      end_products();
      await_products<1>();
      settle(shares);
      take_shares();
      await_slopes();
      if constexpr (in_registers) {
        release_own();
      }
      while (true) {
        take_slopes();
        passing.advance(item);
        if (!passing.seek(item, heads)) {
          break;
        }
        const int previous = stage;
        enter();
        begin_products();
        row.multiply(shares, memory.passing(stage));
        end_products();
        add_gradients(previous);
        other_row.multiply(slopes, memory.other_passing(stage));
        end_products();
        await_products<2>();
        settle(shares);
        take_shares();
        await_slopes();
        passing.release(previous);
      }
      begin_products();
      add_gradients(stage);
      await_products<0>();
      passing.release(stage);
      if constexpr (!in_registers) {
        release_own();
      }
    } else {
      release_own();  // nothing uses them
    }
#pragma unroll
    for (int half = 0; half < Halves; ++half) {
      settle(gradient[half]);
    }

    const std::int64_t column = static_cast<std::int64_t>(item.head) * size;
    if constexpr (OverKeys) {
#pragma unroll
      for (int half = 0; half < Halves; ++half) {
        settle(value_gradient[half]);
      }
      store_sums(static_cast<Element*>(given.dk) + column, strides.keys, warp_row, positions, size, gradient, scale, scale);
      store_sums(static_cast<Element*>(given.dv) + column, strides.keys, warp_row, positions, size, value_gradient, 1.0F, 1.0F);
    } else {
      store_sums(static_cast<Element*>(given.dq) + column, strides.queries, warp_row, positions, size, gradient, scale, scale);
    }
  }
}

template <typename Element, int Halves, bool OverKeys>
__global__ void __launch_bounds__(threads, 1)
    hopper_backward_kernel(const __grid_constant__ Tensors tensors, const AttentionGradients given, float2* row_sums,
                           const AttentionShape shape, const Strides strides, const TileOrder order) {
  using M = Memory<Halves, OverKeys>;
  extern __shared__ unsigned char shared[];
  const M memory{(shared_address_of(shared) + alignment - 1) / alignment * alignment};
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < M::stages; ++stage) {
      create_barrier(memory.filled(stage), 1);
      create_barrier(memory.emptied(stage), multiplying_warps);
    }
    create_barrier(memory.own_filled(), 1);
    create_barrier(memory.own_emptied(), multiplying_warps);
    show_barriers();
  }
  __syncthreads();
  allow_next();
  await_previous();
  if (threadIdx.x >= groups * group_threads) {
    give_registers<copying_registers>();
    if (threadIdx.x == groups * group_threads) {
      copy_all<Halves, OverKeys>(tensors, row_sums, shape, strides, order, memory);
    }
  } else {
    take_registers<multiplying_registers>();
    multiply_all<Element, Halves, OverKeys>(given, row_sums, shape, strides, order, memory, shared);
  }
}

}  // namespace

template <typename Element>
void attention_backward_by_groups(const AttentionShape& shape, const AttentionGradients& operands, float2* row_sums,
                                  cudaStream_t stream) {
  const std::int64_t key_heads = shape.samples * shape.groups;
  const Boxes boxes(shape, std::is_same_v<Element, __half> ? DType::f16 : DType::bf16);
  const CUtensorMap q = boxes.of_queries(operands.q);
  const CUtensorMap dy = boxes.of_queries(operands.dy);
  const CUtensorMap o = boxes.of_queries(operands.o);
  const CUtensorMap k = boxes.of_keys(operands.k);
  const CUtensorMap v = boxes.of_keys(operands.v);
  const auto pass = [&](auto halves, auto over_keys, const TileOrder& order, const Tensors& tensors) {
    const auto blocks = static_cast<unsigned>(std::min(order.items(), multiprocessors()));
    launch(hopper_backward_kernel<Element, halves.value, over_keys.value>,
           {dim3(blocks), dim3(threads), Memory<halves.value, over_keys.value>::bytes}, stream, tensors, operands, row_sums, shape,
           strides_of(shape), order);
  };
  const auto both = [&](auto halves) {
    pass(halves, std::false_type(), order_of(shape, key_heads * shape.heads, shape.heads, multiprocessors()), {q, dy, k, v, o});
    pass(halves, std::true_type(), order_of(shape, key_heads, 1, multiprocessors()), {k, v, q, dy, o});
  };
  if (shape.size <= half_size) {
    both(std::integral_constant<int, 1>());
  } else {
    both(std::integral_constant<int, 2>());
  }
}

template void attention_backward_by_groups<__nv_bfloat16>(const AttentionShape&, const AttentionGradients&, float2*, cudaStream_t);
template void attention_backward_by_groups<__half>(const AttentionShape&, const AttentionGradients&, float2*, cudaStream_t);

}  // namespace baton::cuda
