// Rows of operands for instructions that take up to 128 registers.
//   KB_NUMBERS_n             "%0, %1, …" for the first n operands
//   KB_OPERANDS_n(c, v)      c(v[0]), c(v[1]), …: one asm operand for each of n elements
#pragma once

#define KB_NUMBERS_1 "%0"
#define KB_NUMBERS_2 "%0, %1"
#define KB_NUMBERS_4 KB_NUMBERS_2 ", %2, %3"
#define KB_NUMBERS_8 KB_NUMBERS_4 ", %4, %5, %6, %7"
// clang-format off
#define KB_NUMBERS_16 KB_NUMBERS_8 \
  ", %8, %9, %10, %11, %12, %13, %14, %15"
#define KB_NUMBERS_32 KB_NUMBERS_16 \
  ", %16, %17, %18, %19, %20, %21, %22, %23" \
  ", %24, %25, %26, %27, %28, %29, %30, %31"
#define KB_NUMBERS_64 KB_NUMBERS_32 \
  ", %32, %33, %34, %35, %36, %37, %38, %39" \
  ", %40, %41, %42, %43, %44, %45, %46, %47" \
  ", %48, %49, %50, %51, %52, %53, %54, %55" \
  ", %56, %57, %58, %59, %60, %61, %62, %63"
#define KB_NUMBERS_128 KB_NUMBERS_64 \
  ", %64, %65, %66, %67, %68, %69, %70, %71" \
  ", %72, %73, %74, %75, %76, %77, %78, %79" \
  ", %80, %81, %82, %83, %84, %85, %86, %87" \
  ", %88, %89, %90, %91, %92, %93, %94, %95" \
  ", %96, %97, %98, %99, %100, %101, %102, %103" \
  ", %104, %105, %106, %107, %108, %109, %110, %111" \
  ", %112, %113, %114, %115, %116, %117, %118, %119" \
  ", %120, %121, %122, %123, %124, %125, %126, %127"
// The other multiples of four.
#define KB_NUMBERS_12 KB_NUMBERS_8 ", %8, %9, %10, %11"
#define KB_NUMBERS_20 KB_NUMBERS_16 ", %16, %17, %18, %19"
#define KB_NUMBERS_24 KB_NUMBERS_20 ", %20, %21, %22, %23"
#define KB_NUMBERS_28 KB_NUMBERS_24 ", %24, %25, %26, %27"
#define KB_NUMBERS_36 KB_NUMBERS_32 ", %32, %33, %34, %35"
#define KB_NUMBERS_40 KB_NUMBERS_36 ", %36, %37, %38, %39"
#define KB_NUMBERS_44 KB_NUMBERS_40 ", %40, %41, %42, %43"
#define KB_NUMBERS_48 KB_NUMBERS_44 ", %44, %45, %46, %47"
#define KB_NUMBERS_52 KB_NUMBERS_48 ", %48, %49, %50, %51"
#define KB_NUMBERS_56 KB_NUMBERS_52 ", %52, %53, %54, %55"
#define KB_NUMBERS_60 KB_NUMBERS_56 ", %56, %57, %58, %59"
#define KB_NUMBERS_68 KB_NUMBERS_64 ", %64, %65, %66, %67"
#define KB_NUMBERS_72 KB_NUMBERS_68 ", %68, %69, %70, %71"
#define KB_NUMBERS_76 KB_NUMBERS_72 ", %72, %73, %74, %75"
#define KB_NUMBERS_80 KB_NUMBERS_76 ", %76, %77, %78, %79"
#define KB_NUMBERS_84 KB_NUMBERS_80 ", %80, %81, %82, %83"
#define KB_NUMBERS_88 KB_NUMBERS_84 ", %84, %85, %86, %87"
#define KB_NUMBERS_92 KB_NUMBERS_88 ", %88, %89, %90, %91"
#define KB_NUMBERS_96 KB_NUMBERS_92 ", %92, %93, %94, %95"
#define KB_NUMBERS_100 KB_NUMBERS_96 ", %96, %97, %98, %99"
#define KB_NUMBERS_104 KB_NUMBERS_100 ", %100, %101, %102, %103"
#define KB_NUMBERS_108 KB_NUMBERS_104 ", %104, %105, %106, %107"
#define KB_NUMBERS_112 KB_NUMBERS_108 ", %108, %109, %110, %111"
#define KB_NUMBERS_116 KB_NUMBERS_112 ", %112, %113, %114, %115"
#define KB_NUMBERS_120 KB_NUMBERS_116 ", %116, %117, %118, %119"
#define KB_NUMBERS_124 KB_NUMBERS_120 ", %120, %121, %122, %123"

#define KB_OPERANDS_FROM_1(c, v, i) c((v)[i])
#define KB_OPERANDS_FROM_2(c, v, i) \
  KB_OPERANDS_FROM_1(c, v, i), KB_OPERANDS_FROM_1(c, v, (i) + 1)
#define KB_OPERANDS_FROM_4(c, v, i) \
  KB_OPERANDS_FROM_2(c, v, i), KB_OPERANDS_FROM_2(c, v, (i) + 2)
#define KB_OPERANDS_FROM_8(c, v, i) \
  KB_OPERANDS_FROM_4(c, v, i), KB_OPERANDS_FROM_4(c, v, (i) + 4)
#define KB_OPERANDS_FROM_16(c, v, i) \
  KB_OPERANDS_FROM_8(c, v, i), KB_OPERANDS_FROM_8(c, v, (i) + 8)
#define KB_OPERANDS_FROM_32(c, v, i) \
  KB_OPERANDS_FROM_16(c, v, i), KB_OPERANDS_FROM_16(c, v, (i) + 16)
#define KB_OPERANDS_FROM_64(c, v, i) \
  KB_OPERANDS_FROM_32(c, v, i), KB_OPERANDS_FROM_32(c, v, (i) + 32)
#define KB_OPERANDS_FROM_128(c, v, i) \
  KB_OPERANDS_FROM_64(c, v, i), KB_OPERANDS_FROM_64(c, v, (i) + 64)
#define KB_OPERANDS_1(c, v) KB_OPERANDS_FROM_1(c, v, 0)
#define KB_OPERANDS_2(c, v) KB_OPERANDS_FROM_2(c, v, 0)
#define KB_OPERANDS_4(c, v) KB_OPERANDS_FROM_4(c, v, 0)
#define KB_OPERANDS_8(c, v) KB_OPERANDS_FROM_8(c, v, 0)
#define KB_OPERANDS_16(c, v) KB_OPERANDS_FROM_16(c, v, 0)
#define KB_OPERANDS_32(c, v) KB_OPERANDS_FROM_32(c, v, 0)
#define KB_OPERANDS_64(c, v) KB_OPERANDS_FROM_64(c, v, 0)
#define KB_OPERANDS_128(c, v) KB_OPERANDS_FROM_128(c, v, 0)
#define KB_OPERANDS_12(c, v) KB_OPERANDS_FROM_8(c, v, 0), KB_OPERANDS_FROM_4(c, v, 8)
#define KB_OPERANDS_20(c, v) KB_OPERANDS_FROM_16(c, v, 0), KB_OPERANDS_FROM_4(c, v, 16)
#define KB_OPERANDS_24(c, v) KB_OPERANDS_FROM_16(c, v, 0), KB_OPERANDS_FROM_8(c, v, 16)
#define KB_OPERANDS_28(c, v) \
  KB_OPERANDS_FROM_16(c, v, 0), KB_OPERANDS_FROM_8(c, v, 16), KB_OPERANDS_FROM_4(c, v, 24)
#define KB_OPERANDS_36(c, v) KB_OPERANDS_FROM_32(c, v, 0), KB_OPERANDS_FROM_4(c, v, 32)
#define KB_OPERANDS_40(c, v) KB_OPERANDS_FROM_32(c, v, 0), KB_OPERANDS_FROM_8(c, v, 32)
#define KB_OPERANDS_44(c, v) \
  KB_OPERANDS_FROM_32(c, v, 0), KB_OPERANDS_FROM_8(c, v, 32), KB_OPERANDS_FROM_4(c, v, 40)
#define KB_OPERANDS_48(c, v) KB_OPERANDS_FROM_32(c, v, 0), KB_OPERANDS_FROM_16(c, v, 32)
#define KB_OPERANDS_52(c, v) \
  KB_OPERANDS_FROM_32(c, v, 0), KB_OPERANDS_FROM_16(c, v, 32), KB_OPERANDS_FROM_4(c, v, 48)
#define KB_OPERANDS_56(c, v) \
  KB_OPERANDS_FROM_32(c, v, 0), KB_OPERANDS_FROM_16(c, v, 32), KB_OPERANDS_FROM_8(c, v, 48)
#define KB_OPERANDS_60(c, v) \
  KB_OPERANDS_FROM_32(c, v, 0), KB_OPERANDS_FROM_16(c, v, 32), KB_OPERANDS_FROM_8(c, v, 48), \
  KB_OPERANDS_FROM_4(c, v, 56)
#define KB_OPERANDS_68(c, v) KB_OPERANDS_FROM_64(c, v, 0), KB_OPERANDS_FROM_4(c, v, 64)
#define KB_OPERANDS_72(c, v) KB_OPERANDS_FROM_64(c, v, 0), KB_OPERANDS_FROM_8(c, v, 64)
#define KB_OPERANDS_76(c, v) \
  KB_OPERANDS_FROM_64(c, v, 0), KB_OPERANDS_FROM_8(c, v, 64), KB_OPERANDS_FROM_4(c, v, 72)
#define KB_OPERANDS_80(c, v) KB_OPERANDS_FROM_64(c, v, 0), KB_OPERANDS_FROM_16(c, v, 64)
#define KB_OPERANDS_84(c, v) \
  KB_OPERANDS_FROM_64(c, v, 0), KB_OPERANDS_FROM_16(c, v, 64), KB_OPERANDS_FROM_4(c, v, 80)
#define KB_OPERANDS_88(c, v) \
  KB_OPERANDS_FROM_64(c, v, 0), KB_OPERANDS_FROM_16(c, v, 64), KB_OPERANDS_FROM_8(c, v, 80)
#define KB_OPERANDS_92(c, v) \
  KB_OPERANDS_FROM_64(c, v, 0), KB_OPERANDS_FROM_16(c, v, 64), KB_OPERANDS_FROM_8(c, v, 80), \
  KB_OPERANDS_FROM_4(c, v, 88)
#define KB_OPERANDS_96(c, v) KB_OPERANDS_FROM_64(c, v, 0), KB_OPERANDS_FROM_32(c, v, 64)
#define KB_OPERANDS_100(c, v) \
  KB_OPERANDS_FROM_64(c, v, 0), KB_OPERANDS_FROM_32(c, v, 64), KB_OPERANDS_FROM_4(c, v, 96)
#define KB_OPERANDS_104(c, v) \
  KB_OPERANDS_FROM_64(c, v, 0), KB_OPERANDS_FROM_32(c, v, 64), KB_OPERANDS_FROM_8(c, v, 96)
#define KB_OPERANDS_108(c, v) \
  KB_OPERANDS_FROM_64(c, v, 0), KB_OPERANDS_FROM_32(c, v, 64), KB_OPERANDS_FROM_8(c, v, 96), \
  KB_OPERANDS_FROM_4(c, v, 104)
#define KB_OPERANDS_112(c, v) \
  KB_OPERANDS_FROM_64(c, v, 0), KB_OPERANDS_FROM_32(c, v, 64), KB_OPERANDS_FROM_16(c, v, 96)
#define KB_OPERANDS_116(c, v) \
  KB_OPERANDS_FROM_64(c, v, 0), KB_OPERANDS_FROM_32(c, v, 64), KB_OPERANDS_FROM_16(c, v, 96), \
  KB_OPERANDS_FROM_4(c, v, 112)
#define KB_OPERANDS_120(c, v) \
  KB_OPERANDS_FROM_64(c, v, 0), KB_OPERANDS_FROM_32(c, v, 64), KB_OPERANDS_FROM_16(c, v, 96), \
  KB_OPERANDS_FROM_8(c, v, 112)
#define KB_OPERANDS_124(c, v) \
  KB_OPERANDS_FROM_64(c, v, 0), KB_OPERANDS_FROM_32(c, v, 64), KB_OPERANDS_FROM_16(c, v, 96), \
  KB_OPERANDS_FROM_8(c, v, 112), KB_OPERANDS_FROM_4(c, v, 120)
// clang-format on
